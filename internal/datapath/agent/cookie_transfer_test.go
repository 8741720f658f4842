package agent_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
)

// What TCP_INFO says of a connection's options.
const (
	optTimestamps = 1
	optSACK       = 2
	optWScale     = 4
)

// TestCookiesOfTransfers sends both ways with every kind of stack: cookies are carried exactly where
// both ends have timestamps, no option is lost, and no end finds a timestamp odd.
func TestCookiesOfTransfers(t *testing.T) {
	w := newOrderedWorld(t)
	w.offloads(true)
	for _, c := range []struct {
		name               string
		client, workload   string // net.ipv4.tcp_timestamps
		syncookies, cookie string
		options            uint8
	}{
		{"timestamps", "1", "1", "1", "yes", optTimestamps | optSACK | optWScale},
		{"timestamps from the same start", "2", "2", "1", "yes", optTimestamps | optSACK | optWScale},
		{"client without", "0", "1", "1", "no", optSACK | optWScale},
		{"workload without", "1", "0", "1", "no", optSACK | optWScale},
		{"SYN cookies", "1", "1", "2", "yes", optTimestamps | optSACK | optWScale},
	} {
		w.must(w.client.Sysctl("net.ipv4.tcp_timestamps", c.client))
		for _, ns := range []*netns.NS{w.host, w.workload} {
			w.must(ns.Sysctl("net.ipv4.tcp_timestamps", c.workload), ns.Sysctl("net.ipv4.tcp_syncookies", c.syncookies))
		}
		for name, way := range w.ways() {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				listener := listen(t, way.server, way.dip)
				defer listener.Close()
				served := make(chan error, 1)
				go func() { served <- serveWithOptions(listener, c.options) }()
				connection := dial(t, w.client, way.vip)
				defer connection.Close()
				if err := exchange(connection, 20<<20); err != nil {
					t.Error(err)
				}
				if err := <-served; err != nil {
					t.Errorf("workload: %v", err)
				}
				want := model.Slot(0)
				if c.cookie == "yes" {
					want = slot
				}
				if got := w.cookieOf(connection.LocalAddr()); got != want {
					t.Errorf("cookie is %d, not %d", got, want)
				}
			})
		}
	}
	w.wantNoDrops()
	w.wantNoOddTimestamps()
	if n := w.tcpCounters(w.host)["SyncookiesRecv"]; n == 0 {
		t.Error("no connection began with a SYN cookie")
	}
}

// serveWithOptions receives and sends over a connection that must have the options.
func serveWithOptions(listener net.Listener, options uint8) error {
	accepted, err := listener.Accept()
	if err != nil {
		return err
	}
	defer accepted.Close()
	info, err := tcpInfo(accepted.(*net.TCPConn))
	if err != nil {
		return err
	}
	const all = optTimestamps | optSACK | optWScale
	if info.Options&all != options {
		return fmt.Errorf("options are %#x, not %#x", info.Options, options)
	}
	if err := receive(accepted, 20<<20); err != nil {
		return err
	}
	return send(accepted, 20<<20)
}

// cookieOf is the cookie of a client's session.
func (w *world) cookieOf(client net.Addr) model.Slot {
	w.t.Helper()
	for _, s := range w.sessions() {
		if s.Client.String() == client.String() {
			return s.Cookie
		}
	}
	w.t.Fatalf("no session of %s", client)
	return 0
}

// wantNoOddTimestamps fails if a stack has refused a segment for its timestamps. It needs an ordered world.
func (w *world) wantNoOddTimestamps() {
	w.t.Helper()
	for _, ns := range []*netns.NS{w.client, w.host, w.workload} {
		for name, value := range w.tcpCounters(ns) {
			odd := strings.HasPrefix(name, "PAWS") || name == "TSEcrRejected" || name == "SyncookiesFailed"
			if odd && value != 0 {
				w.t.Errorf("%s: %s is %d", ns.Name(), name, value)
			}
		}
	}
}

// tcpCounters are the extended counters of TCP in a namespace.
func (w *world) tcpCounters(ns *netns.NS) map[string]int {
	w.t.Helper()
	text, err := ns.Run("cat", "/proc/net/netstat")
	w.must(err)
	counters := map[string]int{}
	lines := strings.Split(text, "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		if !strings.HasPrefix(lines[i], "TcpExt:") {
			continue
		}
		values := strings.Fields(lines[i+1])
		for at, name := range strings.Fields(lines[i])[1:] {
			counters[name], err = strconv.Atoi(values[at+1])
			w.must(err)
		}
	}
	if _, ok := counters["PAWSEstab"]; !ok {
		w.t.Fatalf("no counter of PAWS in %s", ns.Name())
	}
	return counters
}
