package mptcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/echo"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netns"
)

// patience is how long a connection waits for anything.
const patience = 30 * time.Second

// Conn is a connection of a client, with Multipath TCP.
type Conn struct {
	*net.TCPConn
	Backend string // that answers
	reader  *bufio.Reader
}

// Dial opens a connection, and makes a request. Idle subflows ask as often as Prepare said.
func Dial(ns *netns.NS, to netip.AddrPort) (*Conn, error) {
	dialer := net.Dialer{Timeout: patience, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: -1, Interval: -1, Count: -1}}
	dialer.SetMultipathTCP(true)
	c := &Conn{}
	err := ns.Do(func() error {
		opened, err := dialer.Dial("tcp", to.String())
		if err == nil {
			c.TCPConn = opened.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	c.reader = bufio.NewReader(c.TCPConn)
	multipath, err := c.MultipathTCP()
	if err == nil && !multipath {
		err = errors.New("it is plain TCP")
	}
	if err := errors.Join(err, c.Ask()); err != nil {
		return nil, fmt.Errorf("open a connection to %s: %w", to, errors.Join(err, c.Close()))
	}
	return c, nil
}

// request makes a request, whose answer the backend must give that gave the others.
func (c *Conn) request(path string) (*http.Response, error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: vip\r\n\r\n"); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(errors.New("answer "+response.Status), response.Body.Close())
	}
	return response, nil
}

// Ask makes a small request.
func (c *Conn) Ask() error {
	response, err := c.request("/")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	backend := response.Header.Get(echo.BackendHeader)
	if c.Backend != "" && backend != c.Backend {
		return fmt.Errorf("%s answers, after %s", backend, c.Backend)
	}
	c.Backend = backend
	return nil
}

// Download is endless bytes that a connection gets. Each is verified.
type Download struct {
	*Conn
	done chan error

	mu      sync.Mutex
	bytes   int64
	last    time.Time     // when some came
	longest time.Duration // that none came
}

// StartDownload has a new connection get bytes as fast as they come.
func StartDownload(ns *netns.NS, from netip.AddrPort) (*Download, error) {
	c, err := Dial(ns, from)
	if err != nil {
		return nil, err
	}
	response, err := c.request(fmt.Sprintf("/bytes/%d", int64(1)<<40)) //nolint:bodyclose // read has it until the connection is closed
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	d := &Download{Conn: c, done: make(chan error, 1), last: time.Now()}
	go func() { d.done <- d.read(response.Body) }()
	return d, nil
}

func (d *Download) read(from io.Reader) error {
	var due echo.Pattern
	got, want := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		if err := d.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		n, err := from.Read(got)
		if err != nil {
			return err
		}
		if _, err := io.ReadFull(&due, want[:n]); err != nil {
			return err
		}
		if !bytes.Equal(got[:n], want[:n]) {
			return errors.New("wrong bytes")
		}
		now := time.Now()
		d.mu.Lock()
		d.bytes, d.last, d.longest = d.bytes+int64(n), now, max(d.longest, now.Sub(d.last))
		d.mu.Unlock()
	}
}

// Begin forgets how long nothing came so far.
func (d *Download) Begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.longest = 0
}

// Seen is how many bytes came, and the longest time since Begin that none came.
func (d *Download) Seen() (bytes int64, longest time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bytes, max(d.longest, time.Since(d.last))
}

// Stop ends the download, which must not have ended before.
func (d *Download) Stop() error {
	err := d.Close()
	if ended := <-d.done; !errors.Is(ended, net.ErrClosed) {
		return errors.Join(ended, err)
	}
	return err
}

// ServerRTO is the retransmission timeout of the server's end of a subflow that begins at a client's address.
func ServerRTO(lab *netlab.Lab, backend string, client netip.AddrPort) (rto time.Duration, err error) {
	ns, err := lab.NS(backend)
	if err != nil {
		return 0, err
	}
	family := uint8(unix.AF_INET)
	if client.Addr().Is6() {
		family = unix.AF_INET6
	}
	var sockets []*netlink.InetDiagTCPInfoResp
	if err := ns.Do(func() (err error) {
		sockets, err = netlink.SocketDiagTCPInfo(family)
		return err
	}); err != nil {
		return 0, fmt.Errorf("list the sockets of %s: %w", backend, err)
	}
	for _, s := range sockets {
		to, _ := netip.AddrFromSlice(s.InetDiagMsg.ID.Destination)
		if s.TCPInfo != nil && netip.AddrPortFrom(to.Unmap(), s.InetDiagMsg.ID.DestinationPort) == client {
			return time.Duration(s.TCPInfo.Rto) * time.Microsecond, nil
		}
	}
	return 0, fmt.Errorf("%s has no connection of %s", backend, client)
}
