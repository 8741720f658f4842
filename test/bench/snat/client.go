package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
)

// opened is one connection that was made.
type opened struct {
	at, took time.Duration // since the client began; of its set-up
	again    int           // SYNs that were sent again
	failed   bool
}

// client opens connections from a namespace at a rate that may change, and holds them.
type client struct {
	ns     *netns.NS
	server netip.AddrPort
	began  time.Time

	mu    sync.Mutex
	all   []opened
	conns []*os.File
	under sync.WaitGroup
}

func newClient(ns *netns.NS, server netip.AddrPort) *client {
	return &client{ns: ns, server: server, began: time.Now()}
}

// patience is for a connection to be made.
const patience = 15 * time.Second

// open opens connections at the rate for a while, each in its own time: a slow one holds up no other.
func (c *client) open(ctx context.Context, rate float64, lasts time.Duration) {
	ticker := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer ticker.Stop()
	end := time.After(lasts)
	for {
		select {
		case <-ctx.Done():
			return
		case <-end:
			return
		case <-ticker.C:
			c.under.Go(c.one)
		}
	}
}

func (c *client) one() {
	conn, o := c.dial()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, o)
	if conn != nil {
		c.conns = append(c.conns, conn)
	}
}

// dial makes a socket in the namespace, and the connection from here: else each would take a thread until it
// is made.
func (c *client) dial() (*os.File, opened) {
	o := opened{at: time.Since(c.began), failed: true}
	socket := -1
	err := c.ns.Do(func() (err error) {
		socket, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, o
	}
	began := time.Now()
	err = unix.Connect(socket, &unix.SockaddrInet4{Port: int(c.server.Port()), Addr: c.server.Addr().As4()})
	conn := os.NewFile(uintptr(socket), "connection")
	if err == nil || errors.Is(err, unix.EINPROGRESS) {
		err = connected(conn)
	}
	o.took, o.failed = time.Since(began), err != nil
	if err != nil {
		_ = conn.Close()
		return nil, o
	}
	o.again = retransmitted(socket)
	return conn, o
}

// connected waits until the connection is made.
func connected(conn *os.File) error {
	if err := conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var refused error
	err = raw.Write(func(fd uintptr) bool {
		code, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil || code != 0 {
			refused = errors.Join(err, unix.Errno(code))
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err == nil
	})
	return errors.Join(err, refused)
}

// retransmitted is how many segments were sent again: of a connection that has sent nothing yet, SYNs.
func retransmitted(socket int) int {
	info, err := unix.GetsockoptTCPInfo(socket, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	return int(info.Total_retrans)
}

// end waits for those under way, closes all, and says what became of each, in order.
func (c *client) end() []opened {
	c.under.Wait()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	slices.SortFunc(c.all, func(a, b opened) int { return int(a.at - b.at) })
	return c.all
}

// percentile is of the set-up of those that were made, in ms.
func percentile(of []opened, percent int) float64 {
	var took []time.Duration
	for _, o := range of {
		if !o.failed {
			took = append(took, o.took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return float64(took[(len(took)-1)*percent/100].Microseconds()) / 1000
}
