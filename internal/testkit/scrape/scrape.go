// Package scrape reads the metrics of running daemons as Prometheus does, and holds the laws that all of
// them keep: names, and labels whose values nobody outside can choose.
package scrape

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// Labels are those that Weir's metrics may have, and what bounds their values.
var Labels = map[string]string{
	"action":        "steps of overload policies",
	"backend":       "backends of the host, as configured",
	"code":          "codes of the API",
	"connected":     "true, false",
	"direction":     "of packets between clients and a VIP: at most three",
	"encapsulation": "two",
	"health":        "three",
	"interface":     "of the program",
	"le":            "buckets of a histogram",
	"mode":          "two",
	"mux":           "muxes, as registered",
	"name":          "of the program",
	"operation":     "kinds of calls of etcd",
	"peer":          "routers, as configured",
	"phase":         "eight, of VIPs on their way into switches",
	"port":          "endpoints, as configured, and ports of the switch",
	"procedure":     "calls of the API",
	"program":       "three",
	"protocol":      "endpoints, as configured",
	"reachable":     "true, false",
	"reason":        "kinds of packets of the slow path, and why hosts steer: seven",
	"result":        "what may become of something",
	"role":          "mux, host, switch, manager",
	"stage":         "priorities of changes, and parts of a port request: three each",
	"state":         "of flows, and of connections past the muxes: two each; of links of a fabric: five",
	"table":         "of a mux: three; of an agent: four",
	"network":       "virtual networks, as configured",
	"tenant":        "tenants, as configured",
	"tunnel":        "backends of the host, as configured",
	"verdict":       "those of the program",
	"version":       "of the program",
	"vip":           "VIPs, as configured",
	"workload":      "workloads that leave as VIPs, as configured",
}

// Text returns what a daemon at url shows, "" if it does not answer.
func Text(url string) string {
	response, err := http.Get(url + "/metrics")
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

// Read returns what a daemon at url shows.
func Read(t *testing.T, url string) string {
	t.Helper()
	text := Text(url)
	if text == "" {
		t.Fatalf("%s shows no metrics", url)
	}
	return text
}

// Await waits until a daemon at url shows all lines.
func Await(t *testing.T, url string, lines ...string) {
	t.Helper()
	AwaitFrom(t, func() string { return Text(url) }, lines...)
}

// AwaitFrom waits until what read returns has all lines.
func AwaitFrom(t *testing.T, read func() string, lines ...string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		text := read()
		missing := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return has(text, line) })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not shown:\n%s\nbut:\n%s", strings.Join(missing, "\n"), own(text))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func has(text, line string) bool { return strings.Contains("\n"+text, "\n"+line+"\n") }

// own are the lines of Weir's metrics.
func own(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "weir_") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// Value is that of the series; it is shown, or the test ends.
func Value(t *testing.T, text, series string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, series+" "); found {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("%s is not shown, but:\n%s", series, own(text))
	return 0
}

// Names are the metrics of Weir in the text, of which a histogram is one.
func Names(text string) []string {
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == "TYPE" && strings.HasPrefix(fields[2], "weir_") {
			names[fields[2]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Lint holds that Weir's metrics in the text keep Prometheus' conventions and have labels of the list only.
func Lint(t *testing.T, text string) {
	t.Helper()
	var weirs strings.Builder
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if strings.HasPrefix(line, "weir_") || len(fields) > 2 && strings.HasPrefix(fields[2], "weir_") {
			weirs.WriteString(line)
		}
	}
	problems, err := promlint.New(strings.NewReader(weirs.String())).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for line := range strings.Lines(own(text)) {
		for _, label := range labelsOf(line) {
			if Labels[label] == "" {
				t.Errorf("label %s is not of the list: %s", label, line)
			}
		}
	}
}

// labelsOf are the names of a series' labels.
func labelsOf(series string) []string {
	_, rest, found := strings.Cut(series, "{")
	if !found {
		return nil
	}
	var names []string
	for rest != "" && rest[0] != '}' {
		name, value, _ := strings.Cut(rest, "=")
		names = append(names, strings.Trim(name, ", "))
		quoted, err := strconv.QuotedPrefix(value)
		if err != nil {
			return names
		}
		rest = strings.TrimPrefix(value[len(quoted):], ",")
	}
	return names
}
