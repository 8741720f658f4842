package churn

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// What churn is about.
const (
	spareHost   = "host4" // its workloads join
	modern      = "client1"
	noTimestamp = "client2" // offers no TCP timestamps

	longLived    = 2000 // of each family
	newPerSecond = 200  // of each family

	bound = 30 * time.Second // of what takes a second or two when the machine is idle
)

// service is what one scenario balances: a VIP of each family with TCP and UDP on port 80, on all
// workloads of some weight.
type service struct {
	name    string
	vips    []netip.Addr
	weights map[string]int // by workload; those of 0 drain
	spec    string         // lines of the VIPs' spec, beside address and endpoints
	check   string         // lines of the endpoints, beside protocol, port and backends
}

func newService(number int) *service {
	return &service{
		name: fmt.Sprintf("churn-%d", number),
		vips: []netip.Addr{
			netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", 100+number)),
			netip.MustParseAddr(fmt.Sprintf("2001:db8:113::%d", 100+number)),
		},
		weights: map[string]int{},
	}
}

func (s *service) manifest(lab *netlab.Lab) string {
	var b strings.Builder
	for _, vip := range s.vips {
		family := 4
		if vip.Is6() {
			family = 6
		}
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s-v%d}\nspec:\n  address: '%s'\n%s  endpoints:\n",
			s.name, family, vip, s.spec)
		for _, protocol := range []string{"TCP", "UDP"} {
			fmt.Fprintf(&b, "    - protocol: %s\n      port: 80\n%s      backends:\n", protocol, s.check)
			for _, n := range lab.Of(netlab.Workload) {
				weight, in := s.weights[n.Name]
				if !in {
					continue
				}
				address := n.IPv4
				if vip.Is6() {
					address = n.IPv6
				}
				fmt.Fprintf(&b, "        - {host: %s, address: '%s', port: %d, weight: %d}\n", n.Host, address, netlab.EchoPort, weight)
			}
		}
	}
	return b.String()
}

// churnLab is a lab of its own: four muxes and twelve workloads on three hosts at work, and in reserve one
// mux and one host with four workloads.
type churnLab struct {
	*netlab.Lab
	services int
	muxes    int    // at work
	spare    string // the mux that is not
}

func newChurnLab(t *testing.T) *churnLab {
	t.Helper()
	lab := testlab.Up(t, netlab.Config{
		Plan:  netlab.Plan{Name: "churn", Clients: 5, Muxes: 5, Hosts: 4, Workloads: 4},
		Later: []string{"mux5", spareHost},
	})
	ns, err := lab.NS(noTimestamp)
	testlab.Must(t, err)
	testlab.Must(t, ns.Sysctl("net.ipv4.tcp_timestamps", "0"))
	return &churnLab{Lab: lab, muxes: 4, spare: "mux5"}
}

// serve applies a new service of weight 1 on the hosts that are no spare, and waits until all muxes
// announce it.
func (l *churnLab) serve(t *testing.T) *service {
	t.Helper()
	return l.serveWith(t, func(*service) {})
}

func (l *churnLab) serveWith(t *testing.T, change func(*service)) *service {
	t.Helper()
	l.services++
	s := newService(l.services)
	change(s)
	for _, n := range l.Of(netlab.Workload) {
		if n.Host != spareHost {
			s.weights[n.Name] = 1
		}
	}
	l.apply(t, s)
	for _, vip := range s.vips {
		testlab.Must(t, l.WaitRouted(t.Context(), bound, vip, l.muxes))
	}
	return s
}

// apply applies a service and waits until the muxes at work run it. One that is dead does not count,
// as it would for apply --wait.
func (l *churnLab) apply(t *testing.T, s *service) {
	t.Helper()
	file := filepath.Join(l.Dir(), s.name+".yaml")
	testlab.Must(t, os.WriteFile(file, []byte(s.manifest(l.Lab)), 0o600))
	if out, err := l.Weir("apply", "-f", file); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	testlab.Must(t, netlab.Poll(t.Context(), bound, func() error {
		status, err := l.Status()
		if err != nil {
			return err
		}
		for _, vip := range status.VIPs {
			if vip.Status.MuxesProgrammed < l.muxes {
				return fmt.Errorf("%s: %d of %d muxes run it", vip.Metadata.Name, vip.Status.MuxesProgrammed, l.muxes)
			}
		}
		return nil
	}))
}

// change gives workloads of a service another weight.
func (l *churnLab) change(t *testing.T, s *service, weight int, workloads ...string) {
	t.Helper()
	for _, w := range workloads {
		s.weights[w] = weight
	}
	l.apply(t, s)
}

// die crashes a mux, which then is the spare one.
func (l *churnLab) die(t *testing.T, mux string) {
	t.Helper()
	testlab.Must(t, l.Crash(mux))
	l.spare = mux
	l.muxes = len(l.atWork(netlab.Mux))
}

// start lets nodes that do not take part do so, again if they did before.
func (l *churnLab) start(t *testing.T, nodes ...string) {
	t.Helper()
	for _, name := range nodes {
		if len(l.Processes(name)) > 0 {
			continue
		}
		start := l.Join
		if _, err := l.Process(name, "weir-mux"); err == nil {
			start = l.Revive
		}
		testlab.Must(t, start(name))
	}
}

// joined waits until the manager knows the nodes that were started.
func (l *churnLab) joined(t *testing.T, nodes ...string) {
	t.Helper()
	testlab.Must(t, netlab.Poll(t.Context(), bound, func() error {
		status, err := l.Status()
		if err != nil {
			return err
		}
		for _, name := range nodes {
			if !slices.ContainsFunc(status.Manager.Nodes, func(n netlab.NodeStatus) bool { return n.Name == name && n.Status.Connected }) {
				return fmt.Errorf("%s is not connected yet", name)
			}
		}
		return nil
	}))
	l.muxes = len(l.atWork(netlab.Mux))
}

// upheaval is all that the scenarios have in common, within ten seconds: a mux dies, another joins, four
// backends drain, four join, one's weight doubles. What is between goes on until it is stopped.
func (l *churnLab) upheaval(t *testing.T, s *service, victim string) {
	t.Helper()
	joins := l.spare
	began := time.Now()
	for i, step := range []struct {
		what string
		do   func()
	}{
		{victim + " dies", func() { l.die(t, victim) }},
		{joins + " and " + spareHost + " start", func() { l.start(t, joins, spareHost) }},
		{"four backends drain", func() { l.change(t, s, 0, "host1-w1", "host1-w2", "host2-w1", "host3-w2") }},
		{"they have joined", func() { l.joined(t, joins, spareHost) }},
		{"four backends join", func() { l.change(t, s, 1, "host4-w1", "host4-w2", "host4-w3", "host4-w4") }},
		{"a weight doubles", func() { l.change(t, s, 2, "host2-w3") }},
	} {
		t.Logf("%4.1f s: %s", time.Since(began).Seconds(), step.what)
		step.do()
		if i > 0 { // what is open feels the death of a mux while backends change
			testlab.After(t, pause)
		}
	}
	t.Logf("%4.1f s: over", time.Since(began).Seconds())
}

// pause is what passes behind each step, with traffic.
const pause = time.Second / 2

// counts is how many packets all muxes, and all hosts, gave each verdict.
type counts map[netlab.Kind]map[string]uint64

func (l *churnLab) counts(t *testing.T) counts {
	t.Helper()
	all := counts{}
	for _, kind := range []netlab.Kind{netlab.Mux, netlab.Host} {
		all[kind] = map[string]uint64{}
		for _, n := range l.Of(kind) {
			if _, err := os.Stat(l.PinPath(n.Name)); err != nil {
				continue // has not joined yet
			}
			verdicts, err := l.Verdicts(n.Name)
			testlab.Must(t, err)
			for name, count := range verdicts {
				all[kind][name] += count
			}
		}
	}
	return all
}

// since holds that some verdicts were given since before, and logs all.
func (l *churnLab) since(t *testing.T, before counts, want map[netlab.Kind][]string) {
	t.Helper()
	for kind, now := range l.counts(t) {
		grown := map[string]uint64{}
		for name, count := range now {
			if count > before[kind][name] {
				grown[name] = count - before[kind][name]
			}
		}
		t.Logf("verdicts of all of kind %s: %v", kind, grown)
		for _, name := range want[kind] {
			if grown[name] == 0 {
				t.Errorf("no %s gave the verdict %s", kind, name)
			}
		}
	}
}
