package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/muxd/status"
	"github.com/weirlb/weir/internal/testkit/fakemanager"
)

// identity names the live objects of the kernel: the attachment, the program, the tables.
func (l *lab) identity() string {
	l.t.Helper()
	live := filepath.Join(l.pinPath, "live")
	pins, err := os.ReadDir(live)
	must(l.t, err)
	var ids []string
	for _, pin := range pins {
		path := filepath.Join(live, pin.Name())
		switch pin.Name() {
		case "link":
			attached, err := link.LoadPinnedLink(path, nil)
			must(l.t, err)
			info, err := attached.Info()
			must(l.t, err)
			ids = append(ids, fmt.Sprintf("link %d runs program %d", info.ID, info.Program))
			attached.Close()
		case "program":
		default:
			table, err := ebpf.LoadPinnedMap(path, nil)
			must(l.t, err)
			info, err := table.Info()
			must(l.t, err)
			id, _ := info.ID()
			ids = append(ids, fmt.Sprintf("%s %d", pin.Name(), id))
			table.Close()
		}
	}
	return strings.Join(ids, "\n")
}

// status is what `weir-mux status -o json` says.
func (l *lab) status() status.Status {
	l.t.Helper()
	cmd := exec.Command(os.Args[0], "status", "-o", "json", "--pin-path", l.pinPath)
	cmd.Env = append(os.Environ(), "WEIR_TEST_MUX=1")
	var out []byte
	must(l.t, l.mux.Do(func() (err error) {
		out, err = cmd.Output()
		return err
	}))
	var s status.Status
	must(l.t, json.Unmarshal(out, &s))
	return s
}

// routeEvents collects what happens to the VIP's route in the router's kernel.
func (l *lab) routeEvents() (read func() []string) {
	l.t.Helper()
	cmd := exec.Command("ip", "monitor", "route")
	out, err := cmd.StdoutPipe()
	must(l.t, err)
	must(l.t, l.router.Start(cmd))
	var lines []string
	listens := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		var once sync.Once
		for in := bufio.NewScanner(out); in.Scan(); {
			once.Do(func() { close(listens) })
			if strings.Contains(in.Text(), vip.String()) {
				lines = append(lines, in.Text())
			}
		}
	})
	for listening := false; !listening; { // a route of our own shows that the monitor listens
		_, err := l.router.Run("ip", "route", "replace", "192.0.2.99/32", "dev", "lo")
		must(l.t, err)
		_, err = l.router.Run("ip", "route", "del", "192.0.2.99/32", "dev", "lo")
		must(l.t, err)
		select {
		case <-listens:
			listening = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	return func() []string {
		cmd.Process.Kill()
		reading.Wait()
		cmd.Wait()
		return lines
	}
}

// forwards starts a mux that forwards for the VIP.
func (l *lab) forwards() (*daemonProcess, *stream) {
	l.t.Helper()
	d := l.start()
	l.manager.Muxes.Publish(table(5))
	eventually(l.t, "the VIP is routed to the mux", func() bool { return strings.Contains(l.routes(), "via 10.2.0.2") })
	eventually(l.t, "the report says so", func() bool { return l.ready(5) })
	s := l.stream()
	s.more(100)
	return d, s
}

// ready says whether the mux reports that it runs generation, with its peer up.
func (l *lab) ready(generation uint64) bool {
	r := l.manager.Report()
	if r.GetGeneration() != generation || len(r.GetStatus().GetPeers()) == 0 {
		return false
	}
	peer := r.GetStatus().GetPeers()[0]
	return peer.GetState() == "established" && peer.GetBfd() == "up" && peer.GetRoutes() == 1
}

// The daemon is killed, or hands over, while datagrams flow; for a while there is no daemon at all.
func TestForwardingOutlivesTheDaemon(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "hands over": syscall.SIGUSR2} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			first, s := l.forwards()
			before, counted := l.identity(), l.status()
			events := l.routeEvents()

			err := first.end(sig)
			if sig != syscall.SIGKILL && err != nil {
				t.Errorf("weir-mux ended with %v", err)
			}
			s.more(1000) // for two seconds without a daemon, which BFD notices
			if got := l.status(); got.Generation != 5 || got.Endpoints[0].Counter.Packets <= counted.Endpoints[0].Counter.Packets {
				t.Errorf("status without a daemon: %+v", got)
			}
			// The manager is away when the next one starts: what is live must do.
			second := l.start("--manager", "http://127.0.0.1:1")
			eventually(t, "the session is up again", func() bool { return strings.Contains(second.log.String(), "session is up") })
			s.more(500)
			if err := second.end(syscall.SIGUSR2); err != nil {
				t.Errorf("weir-mux ended with %v", err)
			}
			l.start()
			l.manager.Forget()
			eventually(t, "the third one reports", func() bool { return l.ready(5) })
			s.more(500)

			if lines := events(); len(lines) > 0 {
				t.Errorf("the route had events: %q", lines)
			}
			if after := l.identity(); after != before {
				t.Errorf("kernel objects:\n%s\nbefore:\n%s", after, before)
			}
			sent, missing := s.lost()
			if len(missing) > 0 {
				t.Errorf("%d of %d datagrams were lost: %v", len(missing), sent, missing)
			}
			if got := l.status().Endpoints[0].Counter.Packets; got != sent {
				t.Errorf("counted %d packets of %d", got, sent)
			}
		})
	}
}

// A mux that was killed knows at its next start what it had seen: an old leader, which may be all that it reaches
// then, is not believed.
func TestAnOldManagerIsNotBelievedAfterARestart(t *testing.T) {
	l := newLab(t)
	l.manager.Muxes.Set(20, table(5))
	first := l.start()
	eventually(t, "the mux runs generation 5", func() bool { return l.manager.Report().GetGeneration() == 5 })
	first.kill()
	before := l.manager.Muxes.Streams()
	if r := before[0]; r.GetEpoch() != 0 || r.GetGeneration() != 0 || !r.GetJoins() {
		t.Errorf("the first start says %v", r)
	}

	l.manager.Muxes.Set(19, table(9))
	second := l.start()
	eventually(t, "it refuses the old manager, and tries again", func() bool { return len(l.manager.Muxes.Streams()) >= len(before)+2 })
	for _, r := range l.manager.Muxes.Streams()[len(before):] {
		if r.GetEpoch() != 20 || r.GetGeneration() != 5 || r.GetCluster() != fakemanager.Cluster || !r.GetJoins() {
			t.Errorf("the second start says %v", r)
		}
	}
	if got := l.status().Generation; got != 5 {
		t.Errorf("the mux runs generation %d of an old manager", got)
	}
	if log := second.log.String(); !strings.Contains(log, "refuse epoch 19, epoch 20 was seen") {
		t.Error("the log does not tell why")
	}
	l.manager.Muxes.Set(21, table(6))
	eventually(t, "it believes a new one", func() bool { return l.manager.Report().GetGeneration() == 6 })
}

func TestCleanStop(t *testing.T) {
	l := newLab(t)
	d, s := l.forwards()
	must(t, d.cmd.Process.Signal(syscall.SIGTERM))
	eventually(t, "the route is withdrawn", func() bool { return l.routes() == "" })
	if _, err := os.Stat(filepath.Join(l.pinPath, "live")); err != nil {
		t.Errorf("forwarding ended with the withdrawal, not after the drain time: %v", err)
	}
	if err := d.end(nil); err != nil {
		t.Errorf("weir-mux ended with %v", err)
	}
	if _, err := os.Stat(filepath.Join(l.pinPath, "live")); !os.IsNotExist(err) {
		t.Errorf("the data plane is still pinned: %v", err)
	}
	s.lost()
}

func TestVIPRemoved(t *testing.T) {
	l := newLab(t)
	_, s := l.forwards()
	empty := table(6)
	empty.Endpoints = nil
	l.manager.Muxes.Publish(empty)
	eventually(t, "the route is withdrawn", func() bool { return l.routes() == "" })
	eventually(t, "the mux runs the generation", func() bool { return l.manager.Report().GetGeneration() == 6 })
	// Whatever reached the mux was forwarded: none was passed to the kernel for want of an endpoint.
	s.lost()
	if got := l.status(); len(got.Endpoints) != 0 {
		t.Errorf("endpoints %+v", got.Endpoints)
	}
}

func TestProblemsAreToldInOneLine(t *testing.T) {
	l := newLab(t)
	cases := []struct {
		args []string
		want string
	}{
		{[]string{"--interface", "eth9"}, "weir-mux: read --interface: interface eth9 not found; this machine has: eth0, lo"},
		{[]string{"--peer", "address=10.2.0.1,as=65000,password-file=/none"}, "weir-mux: configure bgp: peer 10.2.0.1 is named twice"},
		{[]string{"--peer", "address=10.2.0.9,as=65000,password-file=/none"}, "weir-mux: read the password of peer 10.2.0.9: open /none: no such file or directory"},
		{[]string{"--manager", "ftp://there"}, `weir-mux: read the manager's address "ftp://there": ftp is not supported, use https`},
	}
	for _, c := range cases {
		d := l.start(c.args...)
		err := d.end(nil)
		if got := strings.TrimSpace(d.log.String()); err == nil || got != c.want {
			t.Errorf("%v: ended with %v and said %q, want %q", c.args, err, got, c.want)
		}
	}

	away := l.start("--manager", "http://127.0.0.1:1")
	eventually(t, "a line about the manager", func() bool { return strings.Contains(away.log.String(), "no connection to the manager") })
	eventually(t, "bgp runs all the same", func() bool { return strings.Contains(away.log.String(), "bgp session is up") })
	if n := strings.Count(away.log.String(), "manager, retrying"); n != 1 {
		t.Errorf("told %d times that the manager is away:\n%s", n, away.log)
	}
	other := l.start()
	if err := other.end(nil); err == nil || !strings.Contains(other.log.String(), "another") {
		t.Errorf("a second weir-mux on the same pins ended with %v: %s", err, other.log)
	}
}
