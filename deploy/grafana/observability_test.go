package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v4"

	"github.com/weirlb/weir/internal/agentd"
	"github.com/weirlb/weir/internal/manager"
	"github.com/weirlb/weir/internal/muxd"
	"github.com/weirlb/weir/internal/switchd"
	"github.com/weirlb/weir/internal/testkit/scrape"
)

var update = flag.Bool("update", false, "write the lists of metrics in the documentation anew")

const (
	page  = "../../docs/operations/observability.md"
	rules = "../prometheus/weir.rules.yaml"
	tests = "../prometheus/weir.rules.test.yaml"
)

// metric is one that a program describes.
type metric struct {
	name, help string
	labels     []string
}

var described = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}\}$`)

// describe lists what collectors tell, by name.
func describe(t *testing.T, all []prometheus.Collector) []metric {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		for _, c := range all {
			c.Describe(descs)
		}
	}()
	var metrics []metric
	for d := range descs {
		found := described.FindStringSubmatch(d.String())
		if found == nil {
			t.Fatalf("can't read %s", d)
		}
		m := metric{name: found[1], help: strings.Trim(found[2], `"`)}
		if found[4] != "" {
			m.labels = strings.Split(found[4], ",")
		}
		metrics = append(metrics, m)
	}
	slices.SortFunc(metrics, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	return metrics
}

// programs are the metrics of each program.
func programs(t *testing.T) map[string][]metric {
	return map[string][]metric{
		"weir-manager": describe(t, manager.Metrics()),
		"weir-mux":     describe(t, muxd.Metrics()),
		"weir-agent":   describe(t, agentd.Metrics()),
		"weir-switch":  describe(t, switchd.Metrics()),
	}
}

// known are the names that queries may use: Weir's, etcd's, and those of every Go program.
func known(t *testing.T) map[string]bool {
	names := map[string]bool{"weir_build_info": true, "up": true}
	for _, metrics := range programs(t) {
		for _, m := range metrics {
			for _, suffix := range suffixes(m.name) {
				names[m.name+suffix] = true
			}
		}
	}
	// etcd registers its own when it is linked, which the manager's package does.
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, suffix := range suffixes(family.GetName()) {
			names[family.GetName()+suffix] = true
		}
	}
	return names
}

// suffixes are what the series of a metric add to its name.
func suffixes(name string) []string {
	if strings.HasSuffix(name, "_seconds") && strings.Contains(name, "_duration_") {
		return []string{"_bucket", "_sum", "_count"}
	}
	return []string{""}
}

var metricName = regexp.MustCompile(`\b(?:weir|etcd|go|process)_[a-z0-9_]+|\bup\b`)

func checkQuery(t *testing.T, known map[string]bool, where, expr string) {
	t.Helper()
	for _, name := range metricName.FindAllString(expr, -1) {
		if !known[name] {
			t.Errorf("%s: no program tells %s", where, name)
		}
	}
}

func TestDashboardsAskForWhatThereIs(t *testing.T) {
	there, asked := known(t), 0
	for _, d := range dashboards() {
		for _, r := range d.rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					asked++
					checkQuery(t, there, d.uid+": "+p.title, q.expr)
				}
			}
		}
	}
	if asked < 50 {
		t.Errorf("only %d queries were looked at", asked)
	}
}

func TestDashboardsAreGenerated(t *testing.T) {
	folder := t.TempDir()
	if err := write(folder); err != nil {
		t.Fatal(err)
	}
	for _, d := range dashboards() {
		want, err := os.ReadFile(filepath.Join(folder, d.uid+".json"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(d.uid + ".json")
		if err != nil || string(got) != string(want) {
			t.Errorf("%s.json is not what the program writes (%v): run go run ./deploy/grafana", d.uid, err)
		}
		if !json.Valid(got) {
			t.Errorf("%s.json is no JSON", d.uid)
		}
	}
}

// promtool runs Prometheus' own tool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		path = "../../bin/promtool"
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Prometheus' parser reads every query of the dashboards, as rules.
func TestQueriesOfDashboardsAreValid(t *testing.T) {
	type rule struct{ Record, Expr string }
	type group struct {
		Name  string
		Rules []rule
	}
	all := group{Name: "dashboards"}
	for _, d := range dashboards() {
		for _, r := range d.rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					expr := strings.ReplaceAll(q.expr, "$__rate_interval", "5m")
					all.Rules = append(all.Rules, rule{fmt.Sprintf("query:%d", len(all.Rules)), expr})
				}
			}
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []group{all}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// alert is a rule of the file.
type alert struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	promtool(t, "check", "rules", rules)
	promtool(t, "check", "config", "--syntax-only", "../prometheus/prometheus.yaml")
	promtool(t, "test", "rules", tests)
}

func TestEveryAlertIsTestedAndToldOf(t *testing.T) {
	there := known(t)
	tested, told := read(t, tests), read(t, page)
	for _, a := range alerts(t) {
		checkQuery(t, there, a.Alert, a.Expr)
		if !strings.Contains(tested, `alertname="`+a.Alert+`"`) {
			t.Errorf("%s has no test in which it fires", a.Alert)
		}
		if !strings.Contains(told, "\n### "+a.Alert+"\n") {
			t.Errorf("%s does not tell what to do about %s", page, a.Alert)
		}
		if want := "docs/operations/observability.md#" + strings.ToLower(a.Alert); a.Annotations["runbook"] != want {
			t.Errorf("%s: the runbook is %s, want %s", a.Alert, a.Annotations["runbook"], want)
		}
		if s := a.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s: severity %q", a.Alert, s)
		}
		if a.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", a.Alert)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryMetricIsDocumented(t *testing.T) {
	text := read(t, page)
	for _, program := range slices.Sorted(maps.Keys(programs(t))) {
		begin, end := "<!-- metrics of "+program+" -->\n", "<!-- end -->"
		before, rest, found := strings.Cut(text, begin)
		was, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("%s has no list of the metrics of %s", page, program)
		}
		want := table(programs(t)[program])
		if was != want && !*update {
			t.Errorf("%s lists other metrics of %s than there are: run go test ./deploy/grafana -update", page, program)
		}
		text = before + begin + want + end + after
	}
	if *update {
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// table lists metrics as the documentation does.
func table(metrics []metric) string {
	var b strings.Builder
	b.WriteString("| metric | labels | tells |\n|---|---|---|\n")
	for _, m := range metrics {
		labels := ""
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.name, labels, m.help)
	}
	return b.String()
}

func TestLabelsAreOfTheList(t *testing.T) {
	for program, metrics := range programs(t) {
		for _, m := range metrics {
			for _, label := range m.labels {
				if scrape.Labels[label] == "" {
					t.Errorf("%s: %s has the label %s, which is not of the list", program, m.name, label)
				}
			}
		}
	}
}
