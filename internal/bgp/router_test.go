package bgp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/frr"
	"github.com/weirlb/weir/internal/lab/netns"
)

// The topology of these tests. The speakers are processes of this test binary (see TestMain), the
// router is a real FRR.
//
//	      router (AS 65000)
//	   r1 │            │ r2
//	10.8.1.1/24      10.8.2.1/24
//	fd00:8:1::1/64   fd00:8:2::1/64
//	      │            │
//	   s1 │            │ s2
//	 speaker 1      speaker 2       10.8.i.2, fd00:8:i::2 (AS 65010)

const (
	routerAS  = 65000
	speakerAS = 65010
)

var (
	vip4 = netip.MustParsePrefix("203.0.113.10/32")
	vip6 = netip.MustParsePrefix("2001:db8:a::10/128")
)

// TestMain is a speaker when it is called as one, by newSpeaker.
func TestMain(m *testing.M) {
	if text := os.Getenv("WEIR_TEST_SPEAKER"); text != "" {
		if err := speak(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// job is what a speaker process does.
type job struct {
	Config        Config
	Announce      []netip.Prefix
	MACs          []MACRoute
	SetRestarting bool
}

// speak runs a speaker that obeys lines on standard input: "announce PREFIX...", "routes" and "macs" with all of them as JSON,
// "peers" (answers one line of JSON), "stop" and "handover".
func speak(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	j.Config.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := New(j.Config)
	if err != nil {
		return err
	}
	if err := s.Announce(plain(j.Announce)); err != nil {
		return err
	}
	if err := s.AnnounceMACs(j.MACs); err != nil {
		return err
	}
	if j.SetRestarting {
		s.SetRestarting()
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			words := strings.Fields(in.Text())
			switch words[0] {
			case "announce":
				var prefixes []netip.Prefix
				for _, w := range words[1:] {
					prefixes = append(prefixes, netip.MustParsePrefix(w))
				}
				must(s.Announce(plain(prefixes)))
			case "routes":
				must(s.Announce(decoded[Route](words[1])))
			case "macs":
				must(s.AnnounceMACs(decoded[MACRoute](words[1])))
			case "peers":
				json.NewEncoder(os.Stdout).Encode(s.Peers())
			case "handover":
				s.HandOver()
				stop()
			case "stop":
				stop()
			}
		}
	}()
	return s.Run(ctx)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func decoded[T any](text string) (list []T) {
	must(json.Unmarshal([]byte(text), &list))
	return list
}

// plain are the usual routes of prefixes.
func plain(prefixes []netip.Prefix) (routes []Route) {
	for _, p := range prefixes {
		routes = append(routes, Plain(p))
	}
	return routes
}

// run runs a command in ns.
func run(t *testing.T, ns *netns.NS, command string) string {
	t.Helper()
	words := strings.Fields(command)
	out, err := ns.Run(words[0], words[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// network is the topology with a running router.
type network struct {
	t        *testing.T
	router   *netns.NS
	speakers map[int]*netns.NS
	frr      *frr.Router
}

// newNetwork starts a router; change may alter its configuration.
func newNetwork(t *testing.T, change func(*frr.Config)) *network {
	t.Helper()
	n := &network{t: t, router: netns.New(t, "bgp-router"), speakers: map[int]*netns.NS{}}
	for i := 1; i <= 2; i++ {
		n.speakers[i] = netns.New(t, fmt.Sprintf("bgp-speaker%d", i))
		if err := errors.Join(
			netns.Veth(n.router, fmt.Sprintf("r%d", i), n.speakers[i], fmt.Sprintf("s%d", i)),
			n.router.AddAddress(fmt.Sprintf("r%d", i), addresses(i, 1)...),
			n.speakers[i].AddAddress(fmt.Sprintf("s%d", i), addresses(i, 2)...),
		); err != nil {
			t.Fatal(err)
		}
	}
	config := frr.Config{AS: routerAS, RouterID: netip.MustParseAddr("10.255.0.1"), PeerAS: speakerAS}
	for i := range n.speakers {
		for _, a := range addresses(i, 2) {
			config.Neighbors = append(config.Neighbors, a.Addr())
		}
	}
	if change != nil {
		change(&config)
	}
	router, err := frr.Start(n.router, config)
	if err != nil {
		t.Fatal(err)
	}
	n.frr = router
	t.Cleanup(func() {
		if err := router.Stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// addresses are those of an end of link i.
func addresses(i, end int) []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.8.%d.%d/24", i, end)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:8:%d::%d/64", i, end)),
	}
}

// nextHops are the gateways of the router's kernel route to prefix, sorted.
func (n *network) nextHops(prefix netip.Prefix) string {
	n.t.Helper()
	family := "-4"
	if prefix.Addr().Is6() {
		family = "-6"
	}
	out := run(n.t, n.router, "ip -j "+family+" route show "+prefix.Addr().String())
	var routes []struct {
		Gateway  string
		Nexthops []struct{ Gateway string }
	}
	if err := json.Unmarshal([]byte(out), &routes); err != nil {
		n.t.Fatalf("read routes: %v: %s", err, out)
	}
	var gateways []string
	for _, r := range routes {
		if r.Gateway != "" {
			gateways = append(gateways, r.Gateway)
		}
		for _, hop := range r.Nexthops {
			gateways = append(gateways, hop.Gateway)
		}
	}
	slices.Sort(gateways)
	return strings.Join(gateways, " ")
}

func (n *network) wantNextHops(prefix netip.Prefix, want string) {
	n.t.Helper()
	var got string
	eventually(n.t, func() bool { got = n.nextHops(prefix); return got == want },
		func() string { return fmt.Sprintf("next hops of %s: %q, want %q", prefix, got, want) })
}

// wantSteady waits until the router has had a session with speaker i for two seconds, and BFD. FRR from 10.2 on begins BFD anew
// when its first session comes up, which that session does not outlive; and it takes no notice of BFD that falls in the second
// in which a session came up.
func (n *network) wantSteady(i int, bfd bool) {
	n.t.Helper()
	address := fmt.Sprintf("10.8.%d.2", i)
	var out string
	eventually(n.t, func() bool {
		out, _ = n.frr.Vtysh("show bgp neighbors " + address + " json")
		var neighbors map[string]struct {
			BGPState       string
			BGPTimerUpMsec int
			PeerBFDInfo    struct{ Status string }
		}
		if err := json.Unmarshal([]byte(out), &neighbors); err != nil {
			return false
		}
		p := neighbors[address]
		return p.BGPState == "Established" && p.BGPTimerUpMsec >= 2000 && (!bfd || p.PeerBFDInfo.Status == "Up")
	}, func() string { return "the router has no session for two seconds with BFD: " + out })
}

func eventually(t *testing.T, ok func() bool, message func() string) {
	t.Helper()
	for end := time.Now().Add(25 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(message())
		}
	}
}

// routeEvents collects what `ip monitor route` says of prefixes in the router until it is read.
func (n *network) routeEvents(prefixes ...netip.Prefix) (read func() []string) {
	n.t.Helper()
	cmd := exec.Command("ip", "monitor", "route")
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.router.Start(cmd); err != nil {
		n.t.Fatal(err)
	}
	var lines []string
	var done sync.WaitGroup
	ready := make(chan struct{})
	done.Go(func() {
		for in := bufio.NewScanner(out); in.Scan(); {
			if strings.Contains(in.Text(), "192.0.2.99") {
				select {
				case <-ready:
				default:
					close(ready)
				}
			}
			for _, p := range prefixes {
				if strings.Contains(in.Text(), p.Addr().String()) {
					lines = append(lines, in.Text())
				}
			}
		}
	})
	// A route of our own shows that the monitor listens.
	for listening := false; !listening; {
		run(n.t, n.router, "ip route replace 192.0.2.99/32 dev lo")
		select {
		case <-ready:
			listening = true
		case <-time.After(50 * time.Millisecond):
			run(n.t, n.router, "ip route del 192.0.2.99/32 dev lo")
		}
	}
	return func() []string {
		cmd.Process.Kill()
		done.Wait()
		cmd.Wait()
		return lines
	}
}

// speaker is a speaker process.
type speaker struct {
	t      *testing.T
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	log    *netns.Log
	exited chan error
}

// config is that of speaker i, with one session to the router's IPv4 address.
func (n *network) config(i int) Config {
	return Config{
		AS: speakerAS, RouterID: netip.MustParseAddr(fmt.Sprintf("10.8.%d.2", i)),
		NextHop4: netip.MustParseAddr(fmt.Sprintf("10.8.%d.2", i)),
		NextHop6: netip.MustParseAddr(fmt.Sprintf("fd00:8:%d::2", i)),
		HoldTime: 3 * time.Second,
		Peers:    []Peer{{Address: netip.MustParseAddr(fmt.Sprintf("10.8.%d.1", i)), AS: routerAS}},
	}
}

func (n *network) startSpeaker(i int, config Config, announce ...netip.Prefix) *speaker {
	n.t.Helper()
	return n.start(i, job{Config: config, Announce: announce})
}

// restartSpeaker starts a speaker whose predecessor died while the data plane went on.
func (n *network) restartSpeaker(i int, config Config, announce ...netip.Prefix) *speaker {
	n.t.Helper()
	return n.start(i, job{Config: config, Announce: announce, SetRestarting: true})
}

func (n *network) start(i int, j job) *speaker {
	n.t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		n.t.Fatal(err)
	}
	s := &speaker{t: n.t, log: &netns.Log{}, exited: make(chan error, 1)}
	s.cmd = exec.Command(os.Args[0])
	s.cmd.Env = append(os.Environ(), "WEIR_TEST_SPEAKER="+string(text))
	s.cmd.Stderr = s.log
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		n.t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if err := n.speakers[i].Start(s.cmd); err != nil {
		n.t.Fatal(err)
	}
	go func() { s.exited <- s.cmd.Wait() }()
	n.t.Cleanup(func() {
		s.kill()
		if n.t.Failed() {
			n.t.Logf("speaker %d:\n%s", i, s.log)
		}
	})
	return s
}

// say sends a command line.
func (s *speaker) say(line string) {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.in, line); err != nil {
		s.t.Fatalf("tell the speaker to %s: %v", line, err)
	}
}

func (s *speaker) peers() []PeerState {
	s.t.Helper()
	s.say("peers")
	line, err := s.out.ReadString('\n')
	if err != nil {
		s.t.Fatalf("ask the speaker for its peers: %v", err)
	}
	var peers []PeerState
	if err := json.Unmarshal([]byte(line), &peers); err != nil {
		s.t.Fatal(err)
	}
	return peers
}

// want waits until the first peer's state satisfies ok.
func (s *speaker) want(what string, ok func(PeerState) bool) PeerState {
	s.t.Helper()
	var state PeerState
	eventually(s.t, func() bool { state = s.peers()[0]; return ok(state) },
		func() string { return fmt.Sprintf("peer never came to: %s; is %+v", what, state) })
	return state
}

// end tells the speaker to end and waits for it.
func (s *speaker) end(how string) {
	s.t.Helper()
	s.say(how)
	select {
	case err := <-s.exited:
		s.exited <- err
		if err != nil {
			s.t.Errorf("the speaker ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		s.t.Fatal("the speaker does not end")
	}
}

func (s *speaker) signal(which syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(which); err != nil {
		s.t.Fatal(err)
	}
}

// kill ends the speaker by SIGKILL, if it still runs.
func (s *speaker) kill() {
	s.cmd.Process.Signal(syscall.SIGKILL)
	err := <-s.exited
	s.exited <- err
}

func password(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
