package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/overlay"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

const (
	server      = "host1"
	backend     = "host1-w2" // on the host itself
	idleTimeout = 20 * time.Second
	bound       = 30 * time.Second
)

// world is a lab with two virtual networks, whose VIPs have an echo of ours on host1 behind them.
type world struct {
	*netlab.Lab
	listeners []net.Listener
}

func newWorld(ctx context.Context, bin string) (*world, error) {
	w := &world{}
	plan := netlab.Plan{Name: "failbench", Clients: 1, Muxes: 2, Hosts: 1, Workloads: 2, Networks: 2}
	var err error
	if w.Lab, err = benchlab.Up(ctx, bin, netlab.Config{Plan: plan, Workload: w.serve}); err != nil {
		return nil, err
	}
	if err := w.prepare(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// prepare gives the server's host room for many sessions, and attaches the VIPs.
func (w *world) prepare(ctx context.Context) error {
	agent, err := w.Process(server, "weir-agent")
	if err != nil {
		return err
	}
	if err := agent.Stop(unix.SIGTERM, bound); err != nil {
		return err
	}
	if _, err := w.Restart(server, "weir-agent", "--max-network-sessions", "262144"); err != nil {
		return err
	}
	if err := w.WaitReady(ctx); err != nil {
		return err
	}
	n, err := w.Node(backend)
	if err != nil {
		return err
	}
	text := overlay.Manifest(overlay.Networks(2), []string{"chost1", "chost2"}, []overlay.Backend{{Host: server, IPv4: n.IPv4, IPv6: n.IPv6, Port: netlab.EchoPort}})
	text = strings.ReplaceAll(text, "port: 80\n", fmt.Sprintf("port: 80\n      idleTimeout: %s\n", idleTimeout))
	if err := benchlab.Apply(ctx, w.Lab, text, overlay.VXLAN); err != nil {
		return err
	}
	return netlab.Poll(ctx, bound, func() error {
		c, err := w.dial("acme1", 0)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

func (w *world) close() error {
	for _, l := range w.listeners {
		_ = l.Close()
	}
	return w.Down()
}

// serve is an echo, which keeps connections open.
func (w *world) serve(lab *netlab.Lab, n netlab.Node) error {
	ns, err := lab.NS(n.Host)
	if err != nil || n.Name != backend {
		return err
	}
	return ns.Do(func() error {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", netip.AddrPortFrom(n.IPv4, netlab.EchoPort).String())
		if err != nil {
			return err
		}
		w.listeners = append(w.listeners, l)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					_, _ = io.Copy(c, c)
				}()
			}
		}()
		return nil
	})
}

// dial connects a tenant's workload to the VIP.
func (w *world) dial(tenant string, port uint16) (c net.Conn, err error) {
	n, err := w.Node(tenant)
	if err != nil {
		return nil, err
	}
	ns, err := w.NS(tenant)
	if err != nil {
		return nil, err
	}
	err = ns.Do(func() (err error) {
		from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.IPv4, port))
		c, err = (&net.Dialer{Timeout: bound, KeepAlive: -1, LocalAddr: from}).Dial("tcp", netip.AddrPortFrom(overlay.VIP4, 80).String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect from %s: %w", tenant, err)
	}
	return c, nil
}

// traffic is connections that talk.
type traffic struct {
	connections []net.Conn
	every       time.Duration
	stop        chan struct{}
	talk        sync.WaitGroup

	mu      sync.Mutex
	broken  int
	first   error
	longest time.Duration // that an answer took
}

// begin opens connections of a tenant's workload, and has them talk.
func (w *world) begin(tenant string, connections, everyMs int) (*traffic, error) {
	t := &traffic{every: time.Duration(everyMs) * time.Millisecond, stop: make(chan struct{})}
	for range connections {
		c, err := w.dial(tenant, 0)
		if err != nil {
			return nil, err
		}
		t.connections = append(t.connections, c)
	}
	for i, c := range t.connections {
		t.talk.Go(func() {
			time.Sleep(t.every * time.Duration(i) / time.Duration(connections))
			if err := t.run(c, i); err != nil {
				t.mu.Lock()
				t.broken++
				t.first = errors.Join(t.first, err)
				t.mu.Unlock()
			}
		})
	}
	return t, nil
}

func (t *traffic) run(c net.Conn, number int) error {
	for n := 0; ; n++ {
		select {
		case <-t.stop:
			return nil
		default:
		}
		began := time.Now()
		out := fmt.Sprintf("connection %10d message %10d", number, n)
		if err := c.SetDeadline(began.Add(bound)); err != nil {
			return err
		}
		if _, err := io.WriteString(c, out); err != nil {
			return err
		}
		in := make([]byte, len(out))
		if _, err := io.ReadFull(c, in); err != nil {
			return err
		}
		if string(in) != out {
			return fmt.Errorf("%q was answered by %q", out, in)
		}
		took := time.Since(began)
		t.mu.Lock()
		t.longest = max(t.longest, took)
		t.mu.Unlock()
		time.Sleep(t.every - took)
	}
}

// reset forgets the longest answer, and returns it in ms.
func (t *traffic) reset() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.longest
	t.longest = 0
	return float64(was.Microseconds()) / 1000
}

// end ends the connections, and returns how many broke.
func (t *traffic) end() int {
	close(t.stop)
	t.talk.Wait()
	for _, c := range t.connections {
		_ = c.Close()
	}
	if t.broken > 0 {
		fmt.Println(t.first)
	}
	return t.broken
}

// direct is how many bypass flows of a host go straight to servers' hosts.
func (w *world) direct(host string) (int, error) {
	out, err := w.Run(host, w.Find("weir-agent"), "status", "--pin-path", w.PinPath(host), "-o", "json")
	if err != nil {
		return 0, err
	}
	var status struct {
		Networks struct{ Flows map[string]int }
	}
	err = json.Unmarshal([]byte(out), &status)
	return status.Networks.Flows["direct"], err
}

// wait waits for a time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
