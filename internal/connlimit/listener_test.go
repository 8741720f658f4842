package connlimit

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlb/weir/internal/limits"
)

// arrival is a connection from an address: it says a byte for each that is read.
type arrival struct {
	net.Conn
	from   netip.Addr
	silent bool
	until  time.Time // when its client gives up; zero: it does not
	closed bool
}

func (a *arrival) open() (net.Conn, error) { return a, nil }

func (a *arrival) gone() bool { return !a.until.IsZero() && !time.Now().Before(a.until) }
func (a *arrival) close()     { a.closed = true }

func (a *arrival) Read(p []byte) (int, error) {
	if a.silent {
		return 0, errors.New("the caller is gone")
	}
	return copy(p, "x"), nil
}

func (*arrival) Close() error { return nil }

// limited is a Listener at which connections arrive, and a count of those that it accepts by source address.
func limited(t *testing.T, serve func(*conn)) (arrive func(*arrival), served func(netip.Addr) int) {
	t.Helper()
	l := newListener(queueTime)
	var mu sync.Mutex
	accepted := map[netip.Addr]int{}
	go func() {
		for {
			next, err := l.Accept()
			if err != nil {
				return
			}
			c := next.(*conn)
			mu.Lock()
			accepted[c.Conn.(*arrival).from]++
			mu.Unlock()
			c.Read(make([]byte, 1))
			serve(c)
		}
	}()
	t.Cleanup(l.end)
	arrive = func(a *arrival) { l.arrive(limits.Source(a.from), a) }
	return arrive, func(a netip.Addr) int {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return accepted[a]
	}
}

// queueTime is how long connections may be queued.
const queueTime = time.Minute

var (
	client1 = netip.MustParseAddr("192.0.2.1")
	another = netip.MustParseAddr("192.0.2.2")
)

// Connections that end unauthenticated are accepted at a rate, by source address; no other address waits for them.
func TestUnauthenticatedHandshakesHaveARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrive, served := limited(t, func(c *conn) { c.Close() })
		for range 1000 {
			arrive(&arrival{from: client1})
		}
		if n := served(client1); n != limits.ConnectionsEach {
			t.Errorf("%d are served at once, want %d", n, limits.ConnectionsEach)
		}
		arrive(&arrival{from: another})
		if n := served(another); n != 1 {
			t.Error("another address waits")
		}
		time.Sleep(10 * time.Second)
		if n, want := served(client1), limits.ConnectionsEach+10*limits.HandshakesEach; n < want-5 || n > want {
			t.Errorf("%d are served in 10 s, want %d", n, want)
		}
	})
}

// Clients of one address that give up after a while and try again come through, as after a restart of a manager that takes
// longer than that. Those that gave up use up no tokens: the others would never get one.
func TestClientsThatTryAgainComeThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, patience = 1000, 2 * time.Second
		var through atomic.Int32
		starts := time.Now().Add(2 * patience)
		arrive, _ := limited(t, func(c *conn) {
			time.Sleep(max(time.Until(starts), time.Millisecond))
			if !c.socket.gone() {
				through.Add(1)
				c.authenticated()
			}
			c.Close()
		})
		for begin := time.Now(); time.Since(begin) < time.Minute && through.Load() < clients; time.Sleep(patience) {
			for range clients - through.Load() {
				arrive(&arrival{from: client1, until: time.Now().Add(patience)})
			}
		}
		if n := through.Load(); n < clients {
			t.Errorf("%d of %d clients came through in a minute", n, clients)
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
				arrive, served := limited(t, test.serve)
				for range 1000 {
					arrive(&arrival{from: client1, silent: test.silent})
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
		arrive, served := limited(t, func(c *conn) {
			if c.source.Addr() == another && !once {
				once = true
				c.authenticated()
			}
			c.Close()
		})
		arrive(&arrival{from: another})
		served(another)
		stranger := another
		for range limits.HandshakesBurst {
			stranger = stranger.Next()
			arrive(&arrival{from: stranger})
		}
		newcomer := netip.MustParseAddr("198.51.100.1")
		arrive(&arrival{from: newcomer})
		arrive(&arrival{from: another})
		if served(newcomer) != 0 || served(another) != 2 {
			t.Errorf("served are the newcomer %d times, the known address %d times, want 0 and 2", served(newcomer), served(another))
		}
		time.Sleep(time.Second)
		if served(newcomer) != 1 {
			t.Error("the newcomer is never served")
		}
	})
}

// All that have not said who they are have so many connections at once: those who hold theirs keep others out, but for
// source addresses that are known.
func TestConnectionsOfAllAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListener(queueTime)
		t.Cleanup(l.end)
		stranger := another
		for range 2 * limits.ConnectionsAll {
			stranger = stranger.Next()
			l.arrive(limits.Source(stranger), &arrival{from: stranger})
		}
		if n := len(l.accepted); n != limits.HandshakesBurst {
			t.Errorf("%d are served at once, want %d", n, limits.HandshakesBurst)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(l.accepted); n != limits.ConnectionsAll {
			t.Errorf("%d are served that hold their connections, want %d", n, limits.ConnectionsAll)
		}
		l.remember(limits.Source(client1), time.Now())
		l.arrive(limits.Source(client1), &arrival{from: client1})
		if n := len(l.accepted); n != limits.ConnectionsAll+1 {
			t.Error("a known source address waits for others")
		}
	})
}

// Clients of many source addresses that authenticate wait for nobody: each gives its token back.
func TestManyAuthenticatedSourcesDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrive, served := limited(t, func(c *conn) { c.authenticated(); c.Close() })
		begin, host := time.Now(), another
		for range 10 * limits.HandshakesAll {
			host = host.Next()
			arrive(&arrival{from: host})
			served(host)
		}
		if took := time.Since(begin); served(host) != 1 || took > 0 {
			t.Errorf("the last is served %d times after %s", served(host), took)
		}
	})
}

// One source address may have so many connections queued, all together so many, and none for longer than the bound of time.
func TestTheQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListener(queueTime)
		from := client1
		var all []*arrival
		for range 2 + limits.ConnectionsWait/limits.ConnectionsWaitEach {
			for range limits.ConnectionsEach + limits.ConnectionsWaitEach + 1 {
				a := &arrival{from: from}
				all = append(all, a)
				l.arrive(limits.Source(from), a)
			}
			from = from.Next()
		}
		refused := map[netip.Addr]int{}
		for _, a := range all {
			if a.closed {
				refused[a.from]++
			}
		}
		if refused[client1] != 1 || len(l.accepted) == 0 || l.queueLength != limits.ConnectionsWait {
			t.Errorf("%d of the first address are refused, %d are queued, want 1 and %d", refused[client1], l.queueLength, limits.ConnectionsWait)
		}
		if last := all[len(all)-1]; !last.closed {
			t.Error("one is queued beyond the bound of all")
		}
		l.mu.Lock()
		l.served = limits.ConnectionsAll // no turn comes
		l.mu.Unlock()
		time.Sleep(queueTime + time.Second)
		synctest.Wait()
		if l.queueLength > 0 || len(l.ring) > 0 || l.ticking || !all[limits.ConnectionsEach].closed || all[0].closed {
			t.Errorf("%d are queued after %s", l.queueLength, queueTime)
		}
	})
}
