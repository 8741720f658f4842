package manager

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlb/weir/internal/rpc/bound"
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

// gated runs a gate, and counts whom it serves by address.
func gated(t *testing.T, serve func(*visitor)) (arrivals, func(netip.Addr) int) {
	t.Helper()
	listener := make(arrivals)
	g := newGate(listener, time.Hour)
	var mu sync.Mutex
	served := map[netip.Addr]int{}
	go g.run()
	go func() {
		for {
			conn, err := g.Accept()
			if err != nil {
				return
			}
			v, ok := conn.(*visitor)
			if !ok {
				continue
			}
			mu.Lock()
			served[v.Conn.(*arrival).from]++
			mu.Unlock()
			v.Read(make([]byte, 1))
			serve(v)
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
	stranger1 = netip.MustParseAddr("192.0.2.1")
	another   = netip.MustParseAddr("192.0.2.2")
)

// Connections that end without a known caller are served at a rate, by address; nobody else waits for them.
func TestHandshakesOfStrangersHaveARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, served := gated(t, func(v *visitor) { v.Close() })
		for range 1000 {
			listener <- &arrival{from: stranger1}
		}
		if n := served(stranger1); n != bound.ConnectionsEach {
			t.Errorf("%d are served at once, want %d", n, bound.ConnectionsEach)
		}
		listener <- &arrival{from: another}
		if n := served(another); n != 1 {
			t.Error("another address waits")
		}
		time.Sleep(10 * time.Second)
		if n, want := served(stranger1), bound.ConnectionsEach+10*bound.HandshakesEach; n < want-5 || n > want {
			t.Errorf("%d are served in 10 s, want %d", n, want)
		}
	})
}

// Callers that are known have no rate, nor have connections that end without a word.
func TestKnownCallersHaveNoRate(t *testing.T) {
	for name, c := range map[string]struct {
		silent bool
		serve  func(*visitor)
	}{
		"known":  {false, func(v *visitor) { v.prove(); v.Close() }},
		"silent": {true, func(v *visitor) { v.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener, served := gated(t, c.serve)
				for range 1000 {
					listener <- &arrival{from: stranger1, silent: c.silent}
				}
				time.Sleep(time.Second) // some arrive while the places are taken
				if n := served(stranger1); n != 1000 {
					t.Errorf("%d of 1000 are served", n)
				}
			})
		})
	}
}

// Many addresses together have a rate. One that a known caller came from does not wait for it.
func TestKnownAddressesDoNotWaitForStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		knownOnce := false
		listener, served := gated(t, func(v *visitor) {
			if v.source == another.String() && !knownOnce {
				knownOnce = true
				v.prove()
			}
			v.Close()
		})
		listener <- &arrival{from: another}
		served(another)
		stranger := another
		for range bound.ConnectionsAll {
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
