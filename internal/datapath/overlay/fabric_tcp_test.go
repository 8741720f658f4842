package overlay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netns"
)

// fabricFamily has the server behind an interface of its host.
func fabricFamily(f family) family {
	if f.dip = "10.9.0.6:8080"; !netip.MustParseAddrPort(f.client).Addr().Is4() {
		f.dip = "[fd09::6]:8080"
	}
	return f
}

// listen serves each connection by a function of its own, until the test ends.
func (b *fabric) listen(ns *netns.NS, serve func(net.Conn)) {
	b.Helper()
	var listener net.Listener
	b.must(ns.Do(func() (err error) {
		listener, err = net.Listen("tcp", b.dip)
		return err
	}))
	b.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
}

func echo(c net.Conn) {
	defer c.Close()
	_, _ = io.Copy(c, c)
}

// dial connects a client from the port that all use.
func (b *fabric) dial(ns *netns.NS) net.Conn {
	b.Helper()
	var c net.Conn
	defer func() {
		if c == nil {
			b.dump()
		}
	}()
	b.must(ns.Do(func() (err error) {
		dialer := net.Dialer{Timeout: 20 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(b.client))}
		c, err = dialer.Dial("tcp", b.vip)
		return err
	}))
	b.Cleanup(func() { _ = c.Close() })
	b.must(c.SetDeadline(time.Now().Add(60 * time.Second)))
	return c
}

// exchange has an echo answer so many messages.
func (b *fabric) exchange(c net.Conn, messages int) {
	b.Helper()
	out, in := make([]byte, 1000), make([]byte, 1000)
	for n := range messages {
		out[0] = byte(n)
		_, err := c.Write(out)
		_, failed := io.ReadFull(c, in)
		b.must(err, failed)
		if !slices.Equal(out, in) {
			b.Fatal("another tenant's bytes")
		}
	}
}

// dump logs what the programs have done.
func (b *fabric) dump() {
	for _, name := range []string{"chost", "chost2", "shost"} {
		verdicts, _ := b.hosts[name].Verdicts()
		for verdict, c := range verdicts {
			if c.Packets > 0 {
				b.Logf("%s: %d packets: %s", name, c.Packets, verdict)
			}
		}
	}
	if b.mux != nil { // else real muxes are there
		b.Logf("the mux saw %d packets", b.mux.packets.Load())
	}
}

// noDrops fails if a host has dropped a packet.
func (b *fabric) noDrops(but ...string) {
	b.Helper()
	for _, name := range []string{"chost", "chost2", "shost"} {
		verdicts, err := b.hosts[name].Verdicts()
		b.must(err)
		for verdict, c := range verdicts {
			if strings.HasPrefix(verdict, "drop_") && c.Packets > 0 && !slices.Contains(but, verdict) {
				b.Errorf("%s: %d packets: %s", name, c.Packets, verdict)
			}
		}
	}
}

// Two tenants' clients have one address and use one port, and reach one server; of their packets the mux sees the SYNs.
func TestTenantsReachOneServerPastTheMux(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			b := newFabric(t, strings.ReplaceAll(strings.ReplaceAll(name, " over ", ""), "v", "t"), fabricFamily(f))
			seen := make(chan string, 2)
			b.listen(b.hosts["server"].ns, func(c net.Conn) {
				defer c.Close()
				seen <- c.RemoteAddr().String()
				data := make([]byte, transferred)
				if _, err := io.ReadFull(c, data); err == nil {
					_, _ = c.Write(data)
				}
			})
			done := make(chan error, 2)
			var open []net.Conn
			for tenant := range fabricTenants {
				client := b.tenant(tenant)
				b.join(b.hosts["chost"], tenant, client)
				open = append(open, b.dial(client))
			}
			for i, c := range open {
				go func() {
					data := river()
					data[0] = byte(i)
					sent := make(chan error, 1)
					go func() { _, err := c.Write(data); sent <- err }()
					got := make([]byte, transferred)
					_, err := io.ReadFull(c, got)
					if err == nil && !slices.Equal(data, got) {
						err = fmt.Errorf("client %d got other bytes", i)
					}
					done <- errors.Join(<-sent, err)
				}()
			}
			b.must(<-done, <-done)
			first, second := <-seen, <-seen
			if first == second {
				t.Errorf("the server knows both clients as %s", first)
			}
			b.noDrops()
			b.sumsAgree()
		})
	}
}

// sumsAgree holds what both sides have counted against each other, and against the mux.
func (b *fabric) sumsAgree() {
	b.Helper()
	for _, vni := range fabricTenants {
		client, err := b.hosts["chost"].ClientTraffic(vni)
		server, failed := b.hosts["shost"].Traffic(vni)
		b.must(err, failed)
		b.Logf("network %d: client %+v, server %+v", vni, client, server)
		if client.Learnt != 1 || client.Lost+client.Relearnt != 0 || client.ByMux.Packets != client.Begun+client.Repeated {
			b.Errorf("network %d: %+v", vni, client)
		}
		if sent := client.Direct.Packets + client.ByMux.Packets; sent != server.In.Packets || client.In.Packets != server.Out.Packets {
			b.Errorf("network %d: clients sent %d packets and got %d; servers got %d and sent %d",
				vni, sent, client.In.Packets, server.In.Packets, server.Out.Packets)
		}
		backend, err := b.hosts["shost"].BackendTraffic(vni)
		rtts, failed := b.hosts["shost"].Handshakes(vni)
		b.must(err, failed)
		if backend.In != server.In || backend.Out != server.Out || backend.Opened != server.Opened || backend.Confirmed != client.Learnt || backend.Repeated != client.Repeated {
			b.Errorf("network %d: of the backend %+v, of the attachment %+v", vni, backend, server)
		}
		if rtts.Count() != 1 && client.Repeated == 0 || rtts.Sum > time.Minute {
			b.Errorf("network %d: handshakes %+v", vni, rtts)
		}
	}
	if n := b.mux.packets.Load(); n > 8 || b.mux.withoutRoute.Load() != 0 {
		b.Errorf("the mux saw %d packets, %d without the route flag", n, b.mux.withoutRoute.Load())
	}
}

// bypasses exchanges messages until the connection goes straight to the server's host, and says how many times the mux was
// passed meanwhile.
func (b *fabric) bypasses(h *overlayHost, c net.Conn) uint64 {
	b.Helper()
	before := b.mux.packets.Load()
	for range 200 {
		b.exchange(c, 1)
		flows, err := h.Flows()
		b.must(err)
		if slices.ContainsFunc(flows, func(f Flow) bool { return f.State == FlowDirect }) {
			return b.mux.packets.Load() - before
		}
	}
	b.Fatal("the server's host is not learnt")
	return 0
}

// The client's programs go, with their tables, and come back: the connection goes on by the tenant's own overlay and the
// mux meanwhile.
func TestConnectionsOutliveTheClientsPrograms(t *testing.T) {
	for _, name := range []string{"v4 over v4", "v6 over v6"} {
		t.Run(name, func(t *testing.T) {
			b := newFabric(t, "gone"+name[1:2], fabricFamily(families()[name]))
			b.listen(b.hosts["server"].ns, echo)
			h, client := b.hosts["chost"], b.tenant("acme")
			b.join(h, "acme", client)
			b.must(client.SetOffload("eth0", netns.TSO, false), client.SetOffload("eth0", netns.GSO, false))
			c := b.dial(client)
			b.bypasses(h, c)
			b.must(h.Unload())
			for tries := 0; b.mux.withoutRoute.Load() == 0; tries++ { // the kernel detaches programs in its own time
				if b.exchange(c, 1); tries == 10000 {
					t.Fatal("the mux saw no packet without the route flag")
				}
			}
			passed := b.mux.withoutRoute.Load()
			b.exchange(c, 20)
			if n := b.mux.withoutRoute.Load() - passed; n < 20 {
				t.Errorf("of 20 messages the mux saw %d packets without the route flag", n)
			}
			h.open()
			if n := b.bypasses(h, c); n > 5 {
				t.Errorf("%d packets passed the mux until the server's host was learnt again", n)
			}
			b.exchange(c, 20)
			b.noDrops()
		})
	}
}

// A client moves to another host: its connection goes on there, after a packet or two by the mux.
func TestAClientMovesToAnotherHost(t *testing.T) {
	for _, name := range []string{"v4 over v4", "v6 over v4"} {
		t.Run(name, func(t *testing.T) {
			b := newFabric(t, "move"+name[1:2], fabricFamily(families()[name]))
			b.listen(b.hosts["server"].ns, echo)
			client := b.tenant("acme")
			b.join(b.hosts["chost"], "acme", client)
			c := b.dial(client)
			b.bypasses(b.hosts["chost"], c)
			b.leave(b.hosts["chost"], "acme")
			b.join(b.hosts["chost2"], "acme", client)
			if n := b.bypasses(b.hosts["chost2"], c); n > 5 {
				t.Errorf("%d packets passed the mux until the server's host was learnt again", n)
			}
			b.exchange(c, 20)
			flows, err := b.hosts["chost"].Flows()
			if b.must(err); len(flows) != 0 {
				t.Errorf("the old host still has %+v", flows)
			}
			for s := range b.hosts["shost"].All() {
				if s.Host != 8 {
					t.Errorf("the session's client is still at host %d", s.Host)
				}
			}
			b.noDrops()
		})
	}
}

// Client and server are on one host: only the SYN leaves it.
func TestClientAndServerOnOneHost(t *testing.T) {
	for _, name := range []string{"v4 over v4", "v6 over v6", "v4 over v6"} {
		t.Run(name, func(t *testing.T) {
			b := newFabric(t, "pin"+name[1:2]+name[len(name)-1:], fabricFamily(families()[name]))
			b.listen(b.hosts["server"].ns, echo)
			h, client := b.hosts["shost"], b.tenant("acme")
			b.join(h, "acme", client)
			c := b.dial(client)
			if n := b.bypasses(h, c); n != 0 {
				t.Errorf("%d packets passed the mux after the handshake", n)
			}
			large := make(chan error, 1)
			go func() { large <- sendAll(c) }()
			if _, err := io.CopyN(io.Discard, c, transferred); err != nil {
				t.Error(err)
			}
			b.must(<-large)
			verdicts, err := h.Verdicts()
			b.must(err)
			if verdicts["send_local"].Packets == 0 || verdicts["reply_local"].Packets == 0 {
				t.Errorf("verdicts %+v", verdicts)
			}
			b.noDrops()
		})
	}
}
