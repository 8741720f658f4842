package connlimit

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlb/weir/internal/limits"
)

// arrivals is a listener whose connections the test makes.
type arrivals chan net.Conn

func (a arrivals) Accept() (net.Conn, error) {
	conn, open := <-a
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (a arrivals) Close() error { close(a); return nil }

func (arrivals) Addr() net.Addr { return nil }

// arrival is a connection from an address: it says a byte for each that is read.
type arrival struct {
	net.Conn
	from   netip.Addr
	silent bool
}

func (a *arrival) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.from, 1))
}

func (a *arrival) Read(p []byte) (int, error) {
	if a.silent {
		return 0, errors.New("the caller is gone")
	}
	return copy(p, "x"), nil
}

func (*arrival) Close() error { return nil }

// limited runs a Listener, and counts the connections that it accepts by source address.
func limited(t *testing.T, serve func(*conn)) (arrivals, func(netip.Addr) int) {
	t.Helper()
	listener := make(arrivals)
	l := New(listener, time.Hour)
	var mu sync.Mutex
	served := map[netip.Addr]int{}
	go l.Run()
	go func() {
		for {
			accepted, err := l.Accept()
			if err != nil {
				return
			}
			c, ok := accepted.(*conn)
			if !ok {
				continue
			}
			mu.Lock()
			served[c.Conn.(*arrival).from]++
			mu.Unlock()
			c.Read(make([]byte, 1))
			serve(c)
		}
	}()
	t.Cleanup(func() { listener.Close() })
	return listener, func(a netip.Addr) int {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return served[a]
	}
}

var (
	client1 = netip.MustParseAddr("192.0.2.1")
	another = netip.MustParseAddr("192.0.2.2")
)

// Connections that end unauthenticated are accepted at a rate, by source address; no other address waits for them.
func TestUnauthenticatedHandshakesHaveARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, served := limited(t, func(c *conn) { c.Close() })
		for range 1000 {
			listener <- &arrival{from: client1}
		}
		if n := served(client1); n != limits.ConnectionsEach {
			t.Errorf("%d are served at once, want %d", n, limits.ConnectionsEach)
		}
		listener <- &arrival{from: another}
		if n := served(another); n != 1 {
			t.Error("another address waits")
		}
		time.Sleep(10 * time.Second)
		if n, want := served(client1), limits.ConnectionsEach+10*limits.HandshakesEach; n < want-5 || n > want {
			t.Errorf("%d are served in 10 s, want %d", n, want)
		}
	})
}

// Clients that authenticate have no rate, nor have connections that end without a byte.
func TestAuthenticatedClientsHaveNoRate(t *testing.T) {
	for name, test := range map[string]struct {
		silent bool
		serve  func(*conn)
	}{
		"authenticated": {false, func(c *conn) { c.authenticated(); c.Close() }},
		"silent":        {true, func(c *conn) { c.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener, served := limited(t, test.serve)
				for range 1000 {
					listener <- &arrival{from: client1, silent: test.silent}
				}
				time.Sleep(time.Second) // some arrive while the places are taken
				if n := served(client1); n != 1000 {
					t.Errorf("%d of 1000 are served", n)
				}
			})
		})
	}
}

// Many source addresses together have a rate. One from which a client authenticated does not wait for it.
func TestSourcesOfAuthenticatedClientsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once := false
		listener, served := limited(t, func(c *conn) {
			if c.source == another.String() && !once {
				once = true
				c.authenticated()
			}
			c.Close()
		})
		listener <- &arrival{from: another}
		served(another)
		stranger := another
		for range limits.ConnectionsAll {
			stranger = stranger.Next()
			listener <- &arrival{from: stranger}
		}
		newcomer := netip.MustParseAddr("198.51.100.1")
		listener <- &arrival{from: newcomer}
		listener <- &arrival{from: another}
		if served(newcomer) != 0 || served(another) != 2 {
			t.Errorf("served are the newcomer %d times, the known address %d times, want 0 and 2", served(newcomer), served(another))
		}
		time.Sleep(time.Second)
		if served(newcomer) != 1 {
			t.Error("the newcomer is never served")
		}
	})
}
