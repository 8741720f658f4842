package networks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/lab/overlay"
)

const (
	name  = "networks"
	bound = 30 * time.Second
)

// world is a lab with two virtual networks, whose VIPs have an echo on host1 behind them.
type world struct {
	*testing.T
	*netlab.Lab

	mu   sync.Mutex
	seen map[netip.AddrPort]bool // clients, as servers know them

	datagrams []net.PacketConn // of the servers
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	bin := os.Getenv("WEIR_BIN")
	if bin == "" {
		var err error
		bin, err = filepath.Abs("../../bin")
		must(t, err)
	}
	must(t, netlab.Down(name)) // what a run that crashed left
	w := &world{T: t, seen: map[netip.AddrPort]bool{}}
	lab, err := netlab.Up(t.Context(), netlab.Config{
		Plan: netlab.Plan{Name: name, Clients: 1, Muxes: 2, Hosts: 1, Workloads: 2, Networks: 2}, Bin: bin, Tied: true, Workload: w.serve,
	})
	must(t, err)
	w.Lab = lab
	t.Cleanup(func() {
		lab.Report(t)
		must(t, lab.Down())
	})
	if loaded := w.loaded(); len(loaded) > 0 {
		t.Errorf("without a network, programs of networks run on %v", loaded)
	}
	w.apply(func(text string) string { return text })
	return w
}

// apply applies the lab's manifest with a change.
func (w *world) apply(change func(string) string) {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(w.Dir(), "networks.yaml"))
	must(w.T, err)
	file := filepath.Join(w.Dir(), "applied.yaml")
	must(w.T, os.WriteFile(file, []byte(change(string(text))), 0o600))
	if out, err := w.Weir("apply", "-f", file, "--wait"); err != nil {
		w.Fatalf("%v: %s", err, out)
	}
}

// loaded are the hosts that run programs of networks.
func (w *world) loaded() (hosts []string) {
	w.Helper()
	for _, n := range append(w.Of(netlab.Host), w.Of(netlab.ClientHost)...) {
		switch _, err := os.Stat(w.PinPath(n.Name) + "-networks/live"); {
		case err == nil:
			hosts = append(hosts, n.Name)
		case !errors.Is(err, os.ErrNotExist):
			w.Fatal(err)
		}
	}
	return hosts
}

// counts are a host's open sessions of networks' clients, and flows of its own ones that are direct.
func (w *world) counts(host string) (open, direct int) {
	w.Helper()
	out, err := w.Lab.Run(host, w.Find("weir-agent"), "status", "--pin-path", w.PinPath(host), "-o", "json")
	must(w.T, err)
	var status struct {
		Networks struct{ Sessions, Flows map[string]int }
	}
	must(w.T, json.Unmarshal([]byte(out), &status))
	return status.Networks.Sessions["open"], status.Networks.Flows["direct"]
}

// serve is an echo, which keeps connections open.
func (w *world) serve(lab *netlab.Lab, n netlab.Node) error {
	ns, err := lab.NS(n.Name)
	if err != nil {
		return err
	}
	for _, a := range []netip.Addr{n.IPv4, n.IPv6} {
		var listener net.Listener
		err := ns.Do(func() (err error) {
			listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", netip.AddrPortFrom(a, netlab.EchoPort).String())
			return err
		})
		if err != nil {
			return err
		}
		w.Cleanup(func() { _ = listener.Close() })
		go w.accept(listener)
		if err := w.serveDatagrams(ns, a); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) accept(listener net.Listener) {
	for {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		w.mu.Lock()
		w.seen[netip.MustParseAddrPort(c.RemoteAddr().String())] = true
		w.mu.Unlock()
		go func() {
			defer c.Close()
			first := make([]byte, 1)
			if _, err := io.ReadFull(c, first); err != nil {
				return
			}
			if first[0] == pushes[0] {
				push(c)
				return
			}
			_, _ = io.Copy(c, io.MultiReader(bytes.NewReader(first), c))
		}()
	}
}

// pushes is how a client begins that only listens from then on.
const pushes = "!"

// push sends a byte now and then, as a server of news.
func push(c net.Conn) {
	for {
		if _, err := c.Write([]byte{0}); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// clients are the addresses by which servers know whom they have served so far.
func (w *world) clients() (all []netip.AddrPort) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for a := range w.seen {
		all = append(all, a)
	}
	return all
}

// connection is one of a tenant's workload, that of the other tenant having one of the same five-tuple.
type connection struct {
	net.Conn
	mark string // in all that it sends
	sent int
}

func (w *world) space(node string) *netns.NS {
	w.Helper()
	ns, err := w.NS(node)
	must(w.T, err)
	return ns
}

// dial connects a tenant's workload to a VIP of its network, from a port of ours.
func (w *world) dial(tenant string, vip netip.Addr, port uint16) (*connection, error) {
	c := &connection{mark: fmt.Sprintf("%s %s %d ", tenant, vip, port)}
	n, err := w.Node(tenant)
	if err != nil {
		return nil, err
	}
	own := n.IPv4
	if vip.Is6() {
		own = n.IPv6
	}
	err = w.space(tenant).Do(func() (err error) {
		dialer := net.Dialer{Timeout: bound, KeepAlive: -1, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(own, port))}
		c.Conn, err = dialer.Dial("tcp", netip.AddrPortFrom(vip, 80).String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect from %s: %w", tenant, err)
	}
	w.Cleanup(func() { _ = c.Close() })
	return c, nil
}

// talk has the echo answer messages, none of which may be another connection's.
func (c *connection) talk(messages, length int) error {
	if err := c.SetDeadline(time.Now().Add(2 * bound)); err != nil {
		return err
	}
	for range messages {
		c.sent++
		out := strings.Repeat(c.mark+strconv.Itoa(c.sent)+" ", length/len(c.mark)+1)
		if _, err := io.WriteString(c, out); err != nil {
			return err
		}
		in := make([]byte, len(out))
		if _, err := io.ReadFull(c, in); err != nil {
			return err
		}
		if string(in) != out {
			return fmt.Errorf("%s got %.60q", c.mark, in)
		}
	}
	return nil
}

// all has the connections talk at the same time.
func (w *world) all(what string, connections []*connection, messages, length int) {
	w.Helper()
	failed := make(chan error, len(connections))
	for _, c := range connections {
		go func() { failed <- c.talk(messages, length) }()
	}
	broken := 0
	for range connections {
		if err := <-failed; err != nil {
			if broken++; broken <= 3 {
				w.Errorf("%s: %v", what, err)
			}
		}
	}
	if broken > 0 {
		w.Fatalf("%s: %d of %d connections broke", what, broken, len(connections))
	}
}

// connectAll opens connections of both tenants' workloads on both hosts to both VIPs.
func (w *world) connectAll(each int, first uint16) (all []*connection) {
	w.Helper()
	type result struct {
		c   *connection
		err error
	}
	results := make(chan result)
	wanted := 0
	for _, tenant := range []string{"acme1", "bolt1", "acme2", "bolt2"} {
		for _, vip := range []netip.Addr{overlay.VIP4, overlay.VIP6} {
			wanted += each
			go func() {
				for i := range each {
					c, err := w.dial(tenant, vip, first+uint16(i))
					results <- result{c, err}
				}
			}()
		}
	}
	var failed []error
	for range wanted {
		r := <-results
		if r.err != nil {
			failed = append(failed, r.err)
			continue
		}
		all = append(all, r.c)
	}
	must(w.T, failed...)
	return all
}

// restart has a host's agent killed, and started again while its connections talk.
func (w *world) restart(host string, meanwhile []*connection) {
	w.Helper()
	open, direct := w.counts(host)
	if open+direct == 0 {
		w.Errorf("%s has neither sessions nor flows", host)
	}
	p, err := w.Process(host, "weir-agent")
	must(w.T, err, p.Stop(unix.SIGKILL, bound))
	w.all(host+" has no agent", meanwhile, 2, 1000)
	_, err = w.Restart(host, "weir-agent")
	must(w.T, err)
	w.all(host+" has its agent again", meanwhile, 20, 1000)
	node, err := w.Node(host)
	must(w.T, err, netlab.Poll(w.Context(), bound, func() error { // the muxes are dead
		status, err := w.Status()
		return errors.Join(err, status.Ready(node))
	}))
	w.all(host+" is told of networks again", meanwhile, 2, 1000)
	if sessions, flows := w.counts(host); sessions != open || flows != direct {
		w.Errorf("%s had %d sessions and %d direct flows, and has %d and %d", host, open, direct, sessions, flows)
	}
}
