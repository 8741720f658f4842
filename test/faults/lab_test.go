package faults

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
)

var (
	firstSeed = flag.Uint64("first", 1, "the first seed")
	seeds     = flag.Int("seeds", 0, "run all scenarios in full, with so many seeds each; 0: the short selection")
	labName   = flag.String("lab", "faults", "name of the lab: several can run beside each other")
)

const (
	// Clients have addresses of their own, as backends tell connections of two VIPs apart by nothing else.
	holder    = "client1" // holds connections
	requester = "client2" // opens new ones
	operator  = "client3" // writes and reads VIPs

	// bound is how long anything may take to be well again.
	bound = time.Minute
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == memberProgram {
		runMember()
	}
	flag.Parse()
	for _, name := range []string{*labName, five(), external(), restoring()} { // what a run that crashed left
		if err := clear(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// clear takes a lab down, whatever is mounted in it.
func clear(name string) error {
	disks, err := filepath.Glob(filepath.Join(netlab.Root, name, "manager*"))
	if err != nil {
		return err
	}
	for _, disk := range disks {
		if err := unmount(disk); err != nil {
			return err
		}
	}
	return netlab.Down(name)
}

// world is a lab with what one scenario needs.
type world struct {
	*netlab.Lab
	random  *rand.Rand
	full    bool // not the short selection
	cluster *cluster
	history *history
	ports   *ports
}

// marks is how many times the marker was written, by all scenarios.
var marks atomic.Uint64

func newLab(t *testing.T, plan netlab.Plan) *netlab.Lab {
	t.Helper()
	return startLab(t, netlab.Config{Plan: plan})
}

// startLab starts a lab of which no more is said than what is special.
func startLab(t *testing.T, config netlab.Config) *netlab.Lab {
	t.Helper()
	bin := os.Getenv("WEIR_BIN")
	if bin == "" {
		var err error
		bin, err = filepath.Abs("../../bin")
		must(t, err)
	}
	config.Bin, config.Tied = bin, true
	lab, err := netlab.Up(t.Context(), config)
	must(t, err)
	t.Cleanup(func() {
		lab.Report(t)
		must(t, clear(config.Name))
		must(t, lab.Down())
	})
	return lab
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// log tells what is done, with the time of the history, to be read beside what clients noticed.
func (w *world) log(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("%5.1f s: %s", time.Since(w.history.began).Seconds(), fmt.Sprintf(format, args...))
}

// hold lets time pass, with all that is going on.
func (w *world) hold(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

// between draws a time.
func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.random.Int64N(int64(high-low)))
}

// one draws one of several.
func one[T any](w *world, of []T) T { return of[w.random.IntN(len(of))] }

// serving is the manifest of what the clients of the data plane use: a VIP whose backends are not checked, for
// connections that stay, one whose backends are, and those that workloads leave as.
func serving(lab *netlab.Lab) string {
	return manifest(lab, steadyVIP, "", 1) +
		manifest(lab, checkedVIP, "healthCheck: {tcp: {}, interval: 1s, timeout: 900ms, fall: 5}", 1) + leaving(lab)
}

// manifest is that of a VIP in front of all workloads, of which the first has a weight.
func manifest(lab *netlab.Lab, name, check string, weight int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: '%s'\n  endpoints:\n"+
		"    - protocol: TCP\n      port: 80\n      %s\n      backends:\n", name, addresses[name], check)
	for i, n := range lab.Of(netlab.Workload) {
		if i > 0 {
			weight = 1
		}
		fmt.Fprintf(&b, "        - {host: %s, address: '%s', port: %d, weight: %d}\n", n.Host, n.IPv4, netlab.EchoPort, weight)
	}
	return b.String()
}

const (
	steadyVIP  = "steady"
	checkedVIP = "checked"
	markerVIP  = "marker"
	writerVIP  = "writer"
	commandVIP = "command"
)

// addresses are those of all VIPs.
var addresses = map[string]string{
	steadyVIP: "203.0.113.10", checkedVIP: "203.0.113.11", markerVIP: "203.0.113.12",
	writerVIP: "203.0.113.13", commandVIP: "203.0.113.14",
	"r1": "203.0.113.21", "r2": "203.0.113.22", "r3": "203.0.113.23",
	"crawler4": "203.0.113.30", "crawler6": "2001:db8:113::30",
}

// registers are the VIPs that operators write.
var registers = []string{"r1", "r2", "r3"}
