package switchd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/fake"
	"github.com/weirlb/weir/internal/lab/frr"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/switchd/told"
	"github.com/weirlb/weir/internal/testkit/fakemanager"
	"github.com/weirlb/weir/internal/wire"
)

// The topology of these tests. The daemon is a process of this test binary (see TestMain) with a switch in memory, the
// routers are real FRRs.
//
//	  switch (AS 65001) ──── spine (AS 65000)
//	10.9.0.1, fd00:9::1    10.9.0.2, fd00:9::2
//
//	weir-switch dials 192.0.2.1, on an interface of its own, where its next hop is too

const (
	switchAS = 65001
	spineAS  = 65000
	leaseEnv = "WEIR_TEST_SWITCH"
)

var (
	vip4   = netip.MustParseAddr("203.0.113.10")
	vip6   = netip.MustParseAddr("2001:db8:a::10")
	vips   = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:a::/48")}
	tunnel = netip.MustParseAddr("fd00:2::1")
)

// TestMain is a daemon when it is called as one, by site.start.
func TestMain(m *testing.M) {
	if manager := os.Getenv(leaseEnv); manager != "" {
		if err := runDaemon(manager, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runDaemon runs a daemon whose switch obeys lines on standard input, and stops at their end. What the switch holds it
// reads from, and writes to, the data directory, so that it outlives the process.
func runDaemon(manager, dataDir string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	restart := 4 * time.Second
	if os.Getenv("WEIR_TEST_PATIENT") != "" {
		restart = time.Minute
	}
	speaker, err := bgp.New(bgp.Config{
		AS: switchAS, RouterID: netip.MustParseAddr("10.255.0.9"), HoldTime: 3 * time.Second, GracefulRestart: restart,
		NextHop4: netip.MustParseAddr("192.0.2.2"), NextHop6: netip.MustParseAddr("fd00:8::2"),
		Peers: []bgp.Peer{{Address: netip.MustParseAddr("192.0.2.1"), AS: switchAS}}, Log: log,
	})
	if err != nil {
		return err
	}
	client, err := rpc.Access{Managers: manager, Memory: dataDir, Log: log}.Client()
	if err != nil {
		return err
	}
	file, messages, heard, err := told.Open(dataDir)
	if err != nil {
		return err
	}
	sw := fake.New(fake.Limits{})
	held, _, _, err := told.Read(dataDir) // as the switch has it
	if err != nil {
		return err
	}
	config := Config{
		Name: "sw1", Version: "test", Source6: netip.MustParseAddr("fd00:9::1"), NextHop4: netip.MustParseAddr("192.0.2.2"), NextHop6: netip.MustParseAddr("fd00:8::2"),
		Communities: []model.Community{{Admin: switchAS, Value: 100}}, VIPs: vips, Lease: time.Minute, Lead: 250 * time.Millisecond, DrainTime: 100 * time.Millisecond,
		Driver: sw.Open(), Speaker: speaker, Manager: client, Told: file, Messages: messages, Heard: heard, Log: log,
	}
	for _, e := range held {
		sw.PutByHand(hardware.Entry{VIP: e.VIP, Source: config.Source6, Members: []hardware.Member{{Tunnel: e.Members[0].Tunnel, Entries: 1}}})
	}
	if os.Getenv("WEIR_TEST_LOST") != "" {
		sw.RemoveByHand(vip4)
		sw.Refuse(vip4, &hardware.Refusal{VIP: vip4, Reason: "no"})
	}
	d, err := New(config)
	if err != nil {
		return err
	}
	handOver := make(chan os.Signal, 1)
	ctx, stop := notified(handOver)
	defer stop()
	go obey(sw)
	return d.Run(ctx, handOver)
}

func obey(sw *fake.Switch) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch in.Text() {
		case "hang":
			sw.Hang(true)
		case "answer":
			sw.Hang(false)
		case "refuse":
			sw.Refuse(vip4, &hardware.Refusal{VIP: vip4, Table: hardware.ECMP, Need: 8, Free: 1})
		}
		fmt.Println(in.Text())
	}
}

// site is a switch and the router above it.
type site struct {
	*testing.T
	sw, spine *netns.NS
	manager   *fakemanager.Manager
	data      string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, sw: netns.New(t, "switchd-switch"), spine: netns.New(t, "switchd-spine"), data: filepath.Join(t.TempDir(), "data")}
	if err := errors.Join(
		netns.Veth(s.sw, "weir-hop", s.sw, "nobody"), netns.Veth(s.sw, "up", s.spine, "down"),
		s.sw.AddAddress("up", netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("fd00:9::1/64")),
		s.spine.AddAddress("down", netip.MustParsePrefix("10.9.0.2/24"), netip.MustParsePrefix("fd00:9::2/64")),
		s.sw.AddAddress("weir-hop", netip.MustParsePrefix("192.0.2.1/30"), netip.MustParsePrefix("fd00:8::1/64")),
	); err != nil {
		t.Fatal(err)
	}
	s.router(s.sw, frr.Config{
		AS: switchAS, RouterID: netip.MustParseAddr("10.255.0.1"), PeerAS: switchAS, Ranges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/30")},
		GracefulRestart: true, Upstream: []frr.Upstream{{Address: netip.MustParseAddr("10.9.0.2"), AS: spineAS}}, HostRoutes: vips,
	})
	s.router(s.spine, frr.Config{
		AS: spineAS, RouterID: netip.MustParseAddr("10.255.0.2"), PeerAS: switchAS, Ranges: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")},
	})
	s.manager = fakemanager.NewManager(t, s.sw, "127.0.0.1:7400")
	return s
}

func (s *site) router(ns *netns.NS, config frr.Config) {
	s.Helper()
	r, err := frr.Start(ns, config)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if s.Failed() {
			for _, command := range []string{"show bgp ipv4 unicast", "show bgp summary", "show ip route"} {
				out, _ := r.Vtysh(command)
				s.Logf("%s: %s\n%s", ns.Name(), command, out)
			}
			log, _ := os.ReadFile(filepath.Join(r.Dir(), "bgpd.log"))
			s.Logf("%s", log)
		}
		if err := r.Stop(); err != nil {
			s.Error(err)
		}
	})
}

// process is a daemon.
type process struct {
	*site
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Scanner
	exited chan error
}

func (s *site) start(env ...string) *process {
	s.Helper()
	p := &process{site: s, exited: make(chan error, 1)}
	p.cmd = exec.Command(os.Args[0], s.data)
	p.cmd.Env = append(append(os.Environ(), leaseEnv+"="+s.manager.URL), env...)
	log := &netns.Log{}
	p.cmd.Stderr = log
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		s.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := s.sw.Start(p.cmd); err != nil {
		s.Fatal(err)
	}
	go func() { p.exited <- p.cmd.Wait() }()
	s.Cleanup(func() {
		p.cmd.Process.Kill()
		err := <-p.exited
		p.exited <- err
		if s.Failed() {
			s.Logf("daemon:\n%s", log)
		}
	})
	return p
}

func (p *process) signal(which syscall.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(which); err != nil {
		p.Fatal(err)
	}
	select {
	case err := <-p.exited:
		p.exited <- err
		if err != nil && which != syscall.SIGKILL {
			p.Errorf("the daemon ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		p.Fatal("the daemon does not end")
	}
}

// say returns when the process does what it is told.
func (p *process) say(line string) {
	p.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.Fatal(err)
	}
	for p.out.Scan() {
		if p.out.Text() == line {
			return
		}
	}
	p.Fatalf("the daemon ended before it did %q: %v", line, p.out.Err())
}

// tell publishes a snapshot with both VIPs.
func (s *site) tell(generation model.Generation, announce bool, tunnels ...netip.Addr) {
	u := wire.SwitchUpdate{Generation: generation, Snapshot: true}
	for _, vip := range []netip.Addr{vip4, vip6} {
		e := wire.SwitchEntry{VIP: vip, Announce: announce}
		for _, t := range tunnels {
			e.Members = append(e.Members, wire.SwitchMember{Tunnel: t, Entries: 1})
		}
		u.Entries = append(u.Entries, e)
	}
	s.manager.Switches.Publish(u)
}

// route is the spine's kernel route to a VIP, or empty.
func (s *site) route(vip netip.Addr) string {
	s.Helper()
	family := "-4"
	if vip.Is6() {
		family = "-6"
	}
	out, err := s.spine.Run("ip", family, "route", "show", netip.PrefixFrom(vip, vip.BitLen()).String())
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func (s *site) wantRouted(vip netip.Addr, want bool) {
	s.Helper()
	s.eventually(fmt.Sprintf("the spine has a route to %s: %t", vip, want), func() bool { return (s.route(vip) != "") == want })
}

func (s *site) eventually(what string, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(25 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("never: %s", what)
		}
	}
}

// never wants ok to hold all the while.
func (s *site) throughout(what string, for_ time.Duration, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(for_); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if !ok() {
			s.Fatalf("not throughout: %s", what)
		}
	}
}
