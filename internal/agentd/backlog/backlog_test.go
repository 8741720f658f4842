package backlog

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	facts "github.com/weirlb/weir/internal/model/backlog"
	"github.com/weirlb/weir/internal/netlink"
)

func backendOf(address string) model.HostBackend {
	at := netip.MustParseAddrPort(address)
	return model.HostBackend{
		Endpoint: model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: at.Port()}, Tunnel: at.Addr(), Backend: at,
	}
}

// world is a watcher, the backends that it looks at, and a clock.
type world struct {
	*Watcher

	now       time.Time
	changes   int
	listeners []netlink.Listener
}

func newWorld(native ...model.HostBackend) *world {
	w := &world{now: time.Unix(1_700_000_000, 0)}
	w.Watcher = New(Config{
		Listeners: func() ([]netlink.Listener, error) { return w.listeners, nil },
		Native:    func() []model.HostBackend { return native },
		Changed:   func() { w.changes++ }, Log: slog.New(slog.DiscardHandler),
	})
	return w
}

// passes lets seconds pass, with a look in each.
func (w *world) passes(seconds int) {
	for range seconds {
		w.now = w.now.Add(time.Second)
		w.look(w.now)
	}
}

// expect compares what is found, and how often that has changed.
func (w *world) expect(t *testing.T, what string, changes int, want ...Finding) {
	t.Helper()
	if got := w.Findings(); fmt.Sprint(got) != fmt.Sprint(append([]Finding{}, want...)) || w.changes != changes {
		t.Errorf("%s: found %v after %d changes, want %v after %d", what, got, w.changes, want, changes)
	}
}

// A queue is full only after several looks, is so while it comes and goes, and is forgotten after a while.
func TestAFullQueueIsFound(t *testing.T) {
	b := backendOf("10.1.0.5:80")
	w := newWorld(b)
	set := func(waiting, limit uint32) {
		w.listeners = []netlink.Listener{{Address: b.Backend, Waiting: waiting, Limit: limit}}
	}
	set(0, 0)
	w.passes(5)
	w.expect(t, "a listener without a backlog that nobody wants", 0)
	set(127, 128)
	w.passes(5)
	w.expect(t, "a queue with room", 0)
	set(129, 128)
	w.passes(1)
	set(3, 128)
	w.passes(1)
	set(129, 128)
	w.passes(1)
	w.expect(t, "a burst, and another one", 0)
	w.passes(1)
	full := Finding{b.Key(), facts.AcceptQueue, 129, 128}
	w.expect(t, "a full queue", 1, full)
	set(128, 128)
	w.passes(30)
	w.expect(t, "a long one", 1, full) // its figures stay, so reports do not change
	set(0, 128)
	w.passes(7)
	set(129, 128)
	w.passes(1)
	set(0, 128)
	w.passes(7)
	w.expect(t, "one that comes and goes", 1, full)
	w.passes(1)
	w.expect(t, "one that is over", 2)
}

// A backend's queue is that of its own sockets, or of those that listen to all addresses, of several if they share a port.
func TestWhoseAQueueIs(t *testing.T) {
	b, b6 := backendOf("10.1.0.5:80"), backendOf("[fd00::5]:80")
	at := func(address string, waiting uint32, dual bool) netlink.Listener {
		return netlink.Listener{Address: netip.MustParseAddrPort(address), Dual: dual, Waiting: waiting, Limit: 10}
	}
	for what, c := range map[string]struct {
		listeners      []netlink.Listener
		waiting, limit uint32
		of             model.HostBackend
	}{
		"nobody listens":           {nil, 0, 0, b},
		"others":                   {[]netlink.Listener{at("10.1.0.6:80", 9, false), at("10.1.0.5:81", 9, false)}, 0, 0, b},
		"of all addresses":         {[]netlink.Listener{at("0.0.0.0:80", 7, false)}, 7, 10, b},
		"of IPv6 too":              {[]netlink.Listener{at("[::]:80", 7, true)}, 7, 10, b},
		"of IPv6 alone":            {[]netlink.Listener{at("[::]:80", 7, false)}, 0, 0, b},
		"of IPv6":                  {[]netlink.Listener{at("[::]:80", 7, false), at("0.0.0.0:80", 9, false)}, 7, 10, b6},
		"several share a port":     {[]netlink.Listener{at("10.1.0.5:80", 7, false), at("10.1.0.5:80", 2, false)}, 9, 20, b},
		"its own before all":       {[]netlink.Listener{at("10.1.0.5:80", 1, false), at("0.0.0.0:80", 11, false)}, 1, 10, b},
		"a port of another family": {[]netlink.Listener{at("0.0.0.0:80", 11, false)}, 0, 0, b6},
	} {
		if waiting, limit := queueOf(c.listeners, c.of); waiting != c.waiting || limit != c.limit {
			t.Errorf("%s: %d of %d, want %d of %d", what, waiting, limit, c.waiting, c.limit)
		}
	}
}

// SYNs without an answer count where others are answered: a backend that answers nothing is dead, not full.
func TestUnansweredSYNs(t *testing.T) {
	w := newWorld()
	key := backendOf("10.1.0.5:80").Key()
	count := func(unanswered, answers uint32) {
		w.CountSYNs([]facts.SYNs{{Key: key, Unanswered: unanswered, Answers: answers}}, w.now)
	}
	count(1000, 0)
	w.expect(t, "a dead one", 0)
	count(minUnanswered-1, 1000)
	w.expect(t, "some that are lost", 0)
	count(300, 20)
	full := Finding{Key: key, Cause: facts.Unanswered, Waiting: 300}
	w.expect(t, "one that answers others", 1, full)
	for range 10 {
		w.passes(5)
		count(400, 20)
	}
	w.expect(t, "for long", 1, full)
	w.passes(5)
	count(400, 0)
	w.expect(t, "and dies", 1, full)
	w.passes(3)
	w.expect(t, "is forgotten", 2)
}

// What is reported is bounded, and those that are full for longest stay in it.
func TestFindingsAreBounded(t *testing.T) {
	w := newWorld()
	for i := range 3 * facts.MaxReported {
		key := backendOf(fmt.Sprintf("10.1.0.5:%d", 1000-i)).Key()
		w.CountSYNs([]facts.SYNs{{Key: key, Unanswered: 100, Answers: 1}}, w.now.Add(time.Duration(i)*time.Millisecond))
	}
	found := w.Findings()
	if len(found) != facts.MaxReported || found[0].Key.Endpoint.Port != 1000 || len(w.Report()) != facts.MaxReported {
		t.Errorf("%d findings, the first of port %d", len(found), found[0].Key.Endpoint.Port)
	}
}

// The real kernel: a listener that does not accept becomes full, and has room again once it does.
func TestAListenerThatDoesNotAccept(t *testing.T) {
	ns := netns.New(t, fmt.Sprintf("wbacklog%d", os.Getpid()))
	for _, address := range []string{"127.0.0.1:7080", "[::1]:7080"} {
		b := backendOf(address)
		w := newWorld(b)
		w.config.Listeners = netlink.Listeners
		err := ns.Do(func() error {
			const limit = 2
			listener, ends, err := stalled(b.Backend, limit)
			for _, fd := range ends {
				defer unix.Close(fd)
			}
			if err != nil {
				return err
			}
			w.passes(minSamples)
			w.expect(t, address, 1, Finding{b.Key(), facts.AcceptQueue, limit + 1, limit})
			if report := w.Report(); len(report) != 1 || report[0].GetCause() != "accept-queue" || report[0].GetEndpoint().GetPort() != 7080 {
				t.Errorf("reports %v", report)
			}
			for range limit + 1 {
				accepted, _, err := unix.Accept(listener)
				if err != nil {
					return err
				}
				defer unix.Close(accepted)
			}
			w.passes(int(calmTime/time.Second) + 1)
			w.expect(t, address+" accepts", 2)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// stalled is a socket that listens, and as many connections as it lets wait.
func stalled(at netip.AddrPort, limit int) (listener int, ends []int, err error) {
	family := unix.AF_INET6
	var address unix.Sockaddr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	if at.Addr().Is4() {
		family, address = unix.AF_INET, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	listener, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return listener, nil, err
	}
	ends = append(ends, listener)
	if err := unix.Bind(listener, address); err != nil {
		return listener, ends, err
	}
	if err := unix.Listen(listener, limit); err != nil {
		return listener, ends, err
	}
	for range limit + 1 {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return listener, ends, err
		}
		ends = append(ends, fd)
		if err := unix.Connect(fd, address); err != nil {
			return listener, ends, err
		}
	}
	return listener, ends, nil
}
