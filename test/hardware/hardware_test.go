package hardware

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/stream"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

const (
	streams = 30 // of each class at a time
	// patience is longer than an entry that is gone goes unnoticed; in the control nothing is mended.
	patience, impatience = 16 * time.Second, 3 * time.Second
	port                 = 8080
)

var vip = netip.MustParseAddr("203.0.113.80")

// class is a kind of stream, and the client that holds it.
type class struct {
	name    string
	client  string
	network stream.Network
}

var classes = []class{{"TCP with timestamps", "client1", stream.TCP}, {"TCP without", "client2", stream.TCP}, {"UDP", "client2", stream.UDP}}

// lab is a lab, what the VIP asks for, and the streams that hold on.
type lab struct {
	*netlab.Lab
	t        *testing.T
	require  bool   // the switch serves the VIP
	settings string // more of the VIP, from its hardware on
	without  string // workload that is no backend
	drained  string // workload that takes no new connections
	held     map[string]*netload.Streams
}

func up(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, held: map[string]*netload.Streams{}}
	l.Lab = testlab.Up(t, netlab.Config{Plan: netlab.Plan{Name: "hardware", Clients: 2, Muxes: 2, Hosts: 3, Workloads: 2, Switches: 1}})
	ns, err := l.NS("client2")
	l.must(err)
	l.must(ns.Sysctl("net.ipv4.tcp_timestamps", "0"))
	return l
}

func (l *lab) must(err error) {
	l.t.Helper()
	testlab.Must(l.t, err)
}

// apply applies the VIP as it is now. Workloads have IPv6 tunnels, as the switch has.
func (l *lab) apply() {
	l.t.Helper()
	var backends strings.Builder
	for _, n := range l.Of(netlab.Workload) {
		if n.Name == l.without {
			continue
		}
		weight := 1
		if n.Name == l.drained {
			weight = 0
		}
		fmt.Fprintf(&backends, "    - {host: %s, address: '%s', tunnel: '%s', port: %d, weight: %d}\n", n.Host, n.IPv4, n.IPv6, netlab.EchoPort, weight)
	}
	placement := "never"
	if l.require {
		placement = "require"
	}
	testlab.Apply(l.t, l.Lab, fmt.Sprintf("---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: web}\nspec:\n  address: '%s'\n"+
		"  hardware: {placement: %s, switches: [sw1]%[5]s  endpoints:\n  - protocol: TCP\n    port: %[3]d\n    backends:\n%[4]s"+
		"  - protocol: UDP\n    port: %[3]d\n    backends:\n%[4]s", vip, placement, port, backends.String(), cmp.Or(l.settings, "}\n")))
}

// servedBySwitch waits until the router has a route of the VIP's own to the switch, or has none.
func (l *lab) servedBySwitch(want bool) {
	l.t.Helper()
	l.must(netlab.Poll(l.t.Context(), testlab.Bound, func() error {
		route, err := l.Run(string(netlab.Router), "ip", "-4", "route", "show", vip.String()+"/32")
		if err == nil && strings.Contains(route, "via 10.7.1.2") != want {
			err = fmt.Errorf("the router's route to %s is %q", vip, route)
		}
		return err
	}))
}

// place has the switch serve the VIP, or the muxes.
func (l *lab) place(onSwitch bool) {
	l.t.Helper()
	l.require = onSwitch
	l.apply()
	l.servedBySwitch(onSwitch)
}

// hold opens streams of all classes, which hold on from now.
func (l *lab) hold(name string) { l.holdFor(name, patience) }

func (l *lab) holdFor(name string, patience time.Duration) {
	l.t.Helper()
	for _, c := range classes {
		run, err := netload.StartStreams(l.t.Context(), l, c.client, stream.Config{
			Network: c.network, Target: netip.AddrPortFrom(vip, port), Streams: streams, Interval: 50 * time.Millisecond, Patience: patience, Ramp: time.Millisecond,
		})
		l.must(err)
		l.held[name+": "+c.name] = run
	}
	for _, run := range l.held {
		l.must(run.WaitOpened(l.t.Context(), testlab.Bound))
	}
}

// step does something under all streams, and lets them go on for a while.
func (l *lab) step(what string, do func()) {
	l.t.Helper()
	began := time.Now()
	before := l.forwarded()
	do()
	took := time.Since(began)
	l.goOn(time.Second)
	l.t.Logf("%s: took %s, the muxes forwarded %d packets", what, took.Round(time.Millisecond), l.forwarded()-before)
}

// goOn lets the streams go on.
func (l *lab) goOn(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
	}
}

func (l *lab) forwarded() (packets uint64) {
	l.t.Helper()
	for _, n := range l.Of(netlab.Mux) {
		count, err := l.Forwarded(n.Name)
		l.must(err)
		packets += count
	}
	return packets
}

// release ends all streams: each must answer once more.
func (l *lab) release() (broken map[string]int) {
	l.t.Helper()
	broken = map[string]int{}
	names := make([]string, 0, len(l.held))
	for name := range l.held {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		result, err := l.held[name].Stop()
		l.must(err)
		l.t.Logf("%s: %d of %d broken, %d answers, %d datagrams lost, slowest %s", name, result.Broken, result.Opened, result.Blocks, result.Lost, result.Slowest.Round(time.Millisecond))
		if result.Opened+result.Broken < streams || len(result.Backends) < 3 {
			l.t.Errorf("%s: %d streams opened, at %v", name, result.Opened, result.Backends)
		}
		broken[name] = result.Broken
		if result.Broken > 0 {
			l.t.Logf("%+v", result.Breaks[:min(3, len(result.Breaks))])
		}
	}
	clear(l.held)
	return broken
}

func (l *lab) kill(node, program string) {
	l.t.Helper()
	p, err := l.Process(node, program)
	l.must(err)
	l.must(p.Stop(unix.SIGKILL, testlab.Bound))
}

// restart kills a daemon, and starts it again.
func (l *lab) restart(node, program string) {
	l.t.Helper()
	l.kill(node, program)
	_, err := l.Restart(node, program)
	l.must(err)
}

// entry is the switch's own route to the VIP.
func (l *lab) entry() string {
	l.t.Helper()
	route, err := l.Run("sw1", "ip", "-4", "route", "show", vip.String()+"/32")
	l.must(err)
	return route
}

// refuseSteered has all hosts refuse what others hand on to them, and their agents leave it so. It returns how many rows
// that took.
func (l *lab) refuseSteered() (rows int) {
	l.t.Helper()
	for _, n := range l.Of(netlab.Host) {
		agent, err := l.Process(n.Name, "weir-agent")
		l.must(err)
		l.must(agent.Signal(unix.SIGSTOP))
		table, err := ebpf.LoadPinnedMap(filepath.Join(l.PinPath(n.Name), "live", "steer_sources"), nil)
		l.must(err)
		var hosts [][]byte
		var key, role []byte
		for all := table.Iterate(); all.Next(&key, &role); {
			if binary.NativeEndian.Uint32(role) == uint32(bpf.AgentSteerRoleSTEER_HOST) {
				hosts = append(hosts, slices.Clone(key))
			}
		}
		for _, key := range hosts {
			l.must(table.Delete(key))
		}
		rows += len(hosts)
		l.must(table.Close())
	}
	return rows
}

func TestConnectionsSurviveSwitchesAndMuxes(t *testing.T) {
	l := up(t)
	l.place(false)
	l.must(l.WaitHealthy(t.Context(), testlab.Bound))
	l.hold("begun by the muxes")
	l.step("muxes to switch", func() { l.place(true) })
	l.hold("begun by the switch")
	l.step("switch to muxes", func() { l.place(false) })
	l.hold("begun by the muxes again")
	l.step("muxes to switch", func() { l.place(true) })
	before := l.forwarded()
	l.goOn(2 * time.Second)
	if packets := l.forwarded() - before; packets > 50 {
		t.Errorf("the muxes forwarded %d packets while the switch serves the VIP", packets)
	}
	l.step("weir-switch killed", func() { l.restart("sw1", "weir-switch") })
	l.servedBySwitch(true)
	l.step("weir-switch gone", func() {
		l.kill("sw1", "weir-switch")
		l.servedBySwitch(false)
	})
	l.step("and back", func() {
		_, err := l.Restart("sw1", "weir-switch")
		l.must(err)
		l.servedBySwitch(true)
	})
	l.step("the switch's entry removed by hand", func() {
		if l.entry() == "" {
			t.Fatal("the switch has no entry of the VIP")
		}
		_, err := l.Run("sw1", "ip", "route", "del", vip.String()+"/32")
		l.must(err)
		l.must(netlab.Poll(t.Context(), testlab.Bound, func() error {
			if l.entry() == "" {
				return fmt.Errorf("the entry is not back")
			}
			return nil
		}))
	})
	l.step("a backend drained", func() { l.drained = "host1-w1"; l.apply() })
	l.step("and back", func() { l.drained = ""; l.apply() })
	l.step("a host's agent killed", func() { l.restart("host2", "weir-agent") })
	l.servedBySwitch(true)
	for name, n := range l.release() {
		if n > 0 {
			t.Errorf("%s: %d broken", name, n)
		}
	}
	l.control()
}

// control: without steering most break, as the switch brings them to hosts that do not have them.
func (l *lab) control() {
	l.t.Helper()
	l.place(false)
	l.holdFor("control", impatience)
	l.place(true)
	if l.refuseSteered() == 0 {
		l.t.Error("no host takes what others hand on")
	}
	l.goOn(impatience + time.Second)
	// UDP alone tells: a TCP that sends again draws another hash, which the switch sees where both have one kernel.
	if n := l.release()["control: UDP"]; n < streams/3 {
		l.t.Errorf("%d of %d flows broken without steering: the test can't fail", n, streams)
	}
}
