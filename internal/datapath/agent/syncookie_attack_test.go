package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/syncookie"
)

// attacker sends frames where the client does, under any address.
type attacker struct {
	w      *world
	socket int
	random *rand.Rand
}

func (w *world) attack() *attacker {
	w.t.Helper()
	index, err := w.client.Index("eth0")
	w.must(err)
	a := &attacker{w: w, random: rand.New(rand.NewPCG(1, 2))}
	w.must(w.client.Do(func() (err error) {
		if a.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return unix.Bind(a.socket, &unix.SockaddrLinklayer{Ifindex: index})
	}))
	w.t.Cleanup(func() { w.must(unix.Close(a.socket)) })
	return a
}

// send sends packets, and waits until the host has refused so many more cookies than before.
func (a *attacker) send(refused uint64, packets ...pkt.Packet) {
	a.w.t.Helper()
	before := a.refused()
	for _, p := range packets {
		_, err := unix.Write(a.socket, p.Frame())
		a.w.must(err)
	}
	a.w.eventually(fmt.Sprintf("%d cookies are refused", refused), func() bool { return a.refused()-before >= refused })
}

// refused is how many cookies the host has refused.
func (a *attacker) refused() uint64 {
	v := a.w.verdicts()
	return v["drop_syncookie_invalid"].Packets + v["drop_syncookie_expired"].Packets + v["drop_syncookie_replayed"].Packets
}

// forge makes of a client's ACK those that none of the host's business is: of a guessed cookie, of a secret of the
// past, and the right one from another address.
func (a *attacker) forge(ack pkt.Packet, old model.SYNSecret) []pkt.Packet {
	stolen := ack.With(func(p *pkt.Packet) { p.IP.Source = a.address(p.IP.Source) })
	guessed := stolen.With(func(p *pkt.Packet) {
		p.Seq, p.Ack, p.Options = a.random.Uint32(), a.random.Uint32(), nil
	})
	expired := stolen.With(func(p *pkt.Packet) {
		offer := syncookie.Offer{MSS: 1460, Scale: syncookie.NoScale}
		flow := syncookie.Flow{
			Client: netip.AddrPortFrom(p.IP.Source, p.SourcePort), VIP: netip.AddrPortFrom(p.IP.Destination, p.DestinationPort), ISN: p.Seq - 1,
		}
		p.Ack, p.Options = syncookie.Make(old, flow, offer, time.Now())+1, nil
	})
	return []pkt.Packet{stolen, guessed, expired}
}

// address is one of the family that nobody has.
func (a *attacker) address(like netip.Addr) netip.Addr {
	bytes := flood.Sources4.Addr().AsSlice()
	if like.Is6() {
		bytes = flood.Sources6.Addr().AsSlice()
	}
	bytes[len(bytes)-1], bytes[len(bytes)-2] = byte(1+a.random.IntN(254)), byte(a.random.IntN(256))
	address, _ := netip.AddrFromSlice(bytes)
	return address
}

// reach connects, asks, and wants the answer, from any goroutine.
func (w *world) reach(vip string) (connection net.Conn, err error) {
	err = w.client.Do(func() error {
		dialer := net.Dialer{Timeout: patience}
		connection, err = dialer.DialContext(context.Background(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(vip), vipPort).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := asked(connection, "is that you?"); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return connection, nil
}

// acknowledgements are those of the handshakes that were answered so far, the last one at the end.
func (a *answerer) acknowledgements() []pkt.Packet {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]pkt.Packet(nil), a.acks...)
}

// served is a listener that echoes, and counts what it has accepted.
func served(t *testing.T, server *netns.NS, dip string) *atomic.Int64 {
	t.Helper()
	var accepted atomic.Int64
	go echoes(counting{listenTCP(t, server, dip, false, nil), func() { accepted.Add(1) }})
	return &accepted
}

// TestSYNCookiesUnderAttack has clients connect, some at a time, while the secrets are replaced, and others send
// cookies that are guessed, stolen, or of a secret of the past. Each client is accepted, and nobody else.
func TestSYNCookiesUnderAttack(t *testing.T) {
	const rounds, clients = 6, 6
	w := newWorld(t)
	a, bad := w.answer(), w.attack()
	w.cookieWays(t, func(t *testing.T, server *netns.NS, dip, vip string) {
		accepted := served(t, server, dip)
		for range rounds {
			var connecting sync.WaitGroup
			failed := make(chan error, clients)
			for range clients {
				connecting.Go(func() {
					connection, err := w.reach(vip)
					if err != nil {
						failed <- err
						return
					}
					connection.Close()
				})
			}
			// No handshake sees more than one change, as if one took less than a secret's life.
			a.mu.Lock()
			gone := a.secrets[0]
			a.rotate(w, a.secrets[1].ID)
			a.mu.Unlock()
			connecting.Wait()
			close(failed)
			for err := range failed {
				t.Error(err)
			}
			for _, ack := range a.acknowledgements()[max(0, len(a.acknowledgements())-clients):] {
				bad.send(3, bad.forge(ack, gone)...)
			}
		}
		if n := accepted.Load(); n != rounds*clients {
			t.Errorf("the workload accepted %d connections of %d", n, rounds*clients)
		}
	})
	for _, s := range w.sessions() {
		if from := s.Client.Addr(); flood.Sources4.Contains(from) || flood.Sources6.Contains(from) {
			t.Errorf("a forged cookie made %v", s)
		}
	}
	w.wantTaken("syncookie_socket", "syncookie_interface", "drop_syncookie_invalid", "drop_syncookie_expired")
}

// TestReplayedCookies sends clients' ACKs again: while the connection is open, when both ends have finished, and after
// a reset. The workload accepts each connection once.
func TestReplayedCookies(t *testing.T) {
	w := newWorld(t)
	a, bad := w.answer(), w.attack()
	w.cookieWays(t, func(t *testing.T, server *netns.NS, dip, vip string) {
		listener := listenTCP(t, server, dip, false, nil)
		accepted := make(chan *net.TCPConn, 100)
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					close(accepted)
					return
				}
				accepted <- connection.(*net.TCPConn)
				go func() { _, _ = io.Copy(connection, connection) }()
			}
		}()
		last := func() pkt.Packet { all := a.acknowledgements(); return all[len(all)-1] }
		for _, end := range []func(client, server *net.TCPConn){
			func(client, server *net.TCPConn) { w.must(client.CloseWrite(), server.CloseWrite()) },
			func(_, server *net.TCPConn) { w.must(server.SetLinger(0), server.Close()) },
		} {
			connection, err := w.reach(vip)
			w.must(err)
			defer connection.Close()
			ack, its := last(), <-accepted
			defer its.Close()
			bad.sendThrough(ack)
			if err := asked(connection, "still there?"); err != nil {
				t.Error(err)
			}
			end(connection.(*net.TCPConn), its)
			_, err = io.Copy(io.Discard, connection)
			if err != nil && !errors.Is(err, unix.ECONNRESET) {
				t.Error(err)
			}
			bad.sendThrough(ack)
		}
		if len(accepted) != 0 {
			t.Errorf("the workload accepted %d connections that nobody made", len(accepted))
		}
	})
	w.wantTaken("syncookie_socket", "syncookie_interface", "drop_syncookie_invalid")
	if w.verdicts()["drop_syncookie_replayed"].Packets == 0 {
		t.Error("no cookie was refused for it came again")
	}
}

// sendThrough sends a packet three times, and waits until the host has seen them: behind them goes a forged one.
func (a *attacker) sendThrough(p pkt.Packet) {
	a.w.t.Helper()
	stray := p.With(func(p *pkt.Packet) { p.IP.Source, p.Options = a.address(p.IP.Source), nil })
	a.send(1, p, p, p, stray)
}

// TestMergedCookies has the first segment of a connection come merged with those behind it, in a tunnel: the kernel
// makes no SYN of it, but of what the client sends next.
func TestMergedCookies(t *testing.T) {
	w := newWorld(t)
	w.offloads(true)
	w.answer()
	question := strings.Repeat("all at once? ", 800)
	for _, vip := range []string{interfaceVIP4, interfaceVIP6} {
		dip := map[string]string{interfaceVIP4: workloadDIP4, interfaceVIP6: workloadDIP6}[vip]
		served(t, w.workload, dip)
		before := w.verdicts()["drop_syncookie_rewrite"].Packets
		// A busy machine may send the acknowledgement before there is data.
		for tries := 0; w.verdicts()["drop_syncookie_rewrite"].Packets == before; tries++ {
			if tries == 100 {
				t.Fatalf("%s: no cookie came in a merged segment", vip)
			}
			var connection net.Conn
			w.must(w.client.Do(func() (err error) {
				dialer := net.Dialer{Timeout: patience, Control: rawControl(func(fd uintptr) {
					_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0)
				})}
				connection, err = dialer.DialContext(context.Background(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(vip), vipPort).String())
				return err
			}))
			if err := asked(connection, question); err != nil {
				t.Error(err)
			}
			connection.Close()
		}
	}
}
