package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
)

const (
	connections = 10      // at a time, of each client
	uploadBytes = 1 << 20 // of each connection
	chunk       = 16 << 10
)

// uploads counts what all clients have done.
type uploads struct {
	done, failed, bytes atomic.Uint64
	running             sync.WaitGroup

	mu    sync.Mutex
	first error // of those that failed
}

// start has each client workload keep so many connections at work until ctx ends, one upload after the other.
// takes 0 is at full speed.
func (w *world) start(ctx context.Context, size int, takes time.Duration) *uploads {
	u := &uploads{}
	i := 0
	for _, host := range clientHosts {
		for _, n := range w.on(host) {
			for range connections {
				// They begin spread over the time that one takes.
				delay := takes * time.Duration(i) / time.Duration(connections*each*len(clientHosts))
				i++
				u.running.Go(func() {
					pause(ctx, delay)
					for ctx.Err() == nil {
						u.count(ctx, w.upload(ctx, u, n, size, takes))
					}
				})
			}
		}
	}
	return u
}

func (u *uploads) count(ctx context.Context, err error) {
	switch {
	case err == nil:
		u.done.Add(1)
	case ctx.Err() == nil:
		u.failed.Add(1)
		u.mu.Lock()
		if u.first == nil {
			u.first = err
		}
		u.mu.Unlock()
		pause(ctx, time.Second)
	}
}

// wait waits for those under way to end, and says why one failed.
func (u *uploads) wait() error {
	u.running.Wait()
	if n := u.failed.Load(); n > 0 {
		return fmt.Errorf("%d uploads failed, %w", n, u.first)
	}
	return nil
}

// upload sends size bytes in even steps, and waits for the server's word that they came.
func (w *world) upload(ctx context.Context, u *uploads, n netlab.Node, size int, takes time.Duration) error {
	conn, err := w.dial(n)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	began, data := time.Now(), make([]byte, chunk)
	for sent := 0; sent < size; sent += chunk {
		pause(ctx, time.Until(began.Add(takes*time.Duration(sent)/time.Duration(size))))
		if _, err := conn.Write(data); err != nil {
			return err
		}
		u.bytes.Add(chunk)
	}
	if err := conn.CloseWrite(); err != nil {
		return err
	}
	_, err = conn.Read(data[:1])
	return err
}

// dial connects from the workload's own address.
func (w *world) dial(n netlab.Node) (*net.TCPConn, error) {
	ns, err := w.lab.NS(n.Name)
	if err != nil {
		return nil, err
	}
	var conn *net.TCPConn
	err = ns.Do(func() (err error) {
		conn, err = net.DialTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(n.IPv4, 0)), net.TCPAddrFromAddrPort(netip.AddrPortFrom(serverVIP, port)))
		return err
	})
	return conn, err
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
