package overlay

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// answerSYNs has the muxes answer all SYNs with cookies, and the server's host take the connections over.
func (r *realMuxes) answerSYNs() {
	r.Helper()
	service := netip.MustParseAddrPort(r.service)
	for _, m := range r.muxes {
		r.must(m.SetSYNSecrets(synSecrets), m.Apply([]model.MuxEndpoint{{
			Key:      model.EndpointKey{VIP: service.Addr(), Protocol: model.TCP, Port: service.Port()},
			Backends: []model.MuxBackend{{Slot: 1, Tunnel: netip.MustParseAddr(r.tunnel), Host: 9}},
			Buckets:  slices.Repeat([]model.Slot{1}, 256), Ping: true, SYNCookies: model.SYNCookiesAlways,
		}}, nil))
	}
	h := r.hosts["shost"]
	rules := h.Rules()
	for number, rule := range rules {
		rule.SYNCookies = true
		rules[number] = rule
	}
	r.must(h.SetSYNSecrets(synSecrets), h.SetRules(rules))
}

// serveNatively has the server on its host itself, and returns where it listens.
func (r *realMuxes) serveNatively() *netns.NS {
	r.Helper()
	h := r.hosts["shost"]
	rules := h.Rules()
	for number, rule := range rules {
		rule.Backend, rule.Ifindex = netip.AddrPortFrom(netip.MustParseAddr(r.tunnel), 8080), 0
		rules[number], r.dip = rule, rule.Backend.String()
	}
	r.must(h.SetRules(rules))
	return h.ns
}

// flood sends SYNs to the VIP from ports of a client that has no sockets there.
func (r *realMuxes) flood(client *netns.NS, syns int) {
	r.Helper()
	of, to := sockaddrOf(netip.MustParseAddrPort(r.vip).Addr())
	from := netip.MustParseAddrPort(r.client).Addr()
	r.must(client.Do(func() error {
		socket, err := unix.Socket(of, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(socket)
		for n := range syns {
			syn := pkt.TCP(netip.AddrPortFrom(from, uint16(30000+n)).String(), r.vip, pkt.SYN, pkt.MSS(1460), pkt.Payload(nil))
			syn.Seq = rand.Uint32()
			if err := unix.Sendto(socket, syn.Frame()[14:], 0, to); err != nil {
				return err
			}
		}
		return nil
	}))
}

// answered are the SYNs that muxes have answered.
func (r *realMuxes) answered() (n uint64) {
	r.Helper()
	for _, m := range r.muxes {
		verdicts, err := m.Verdicts()
		r.must(err)
		n += verdicts["reply_syn"].Packets
	}
	return n
}

// Muxes answer the SYNs of two tenants with cookies: of a flood nothing reaches the server's host. Connections of both
// tenants, with equal five-tuples, begin by cookies, become direct, and go on without any mux.
func TestConnectionsBeginBySYNCookies(t *testing.T) {
	const each, syns = 20, 2000
	for name, native := range map[string]bool{"v4 over v4": false, "v6 over v6": false, "v4 over v4, on the host": true} {
		t.Run(name, func(t *testing.T) {
			f := families()[name[:10]]
			if !native {
				f = fabricFamily(f)
			}
			r := newRealMuxes(t, "syn"+name[1:2]+map[bool]string{true: "n"}[native], f)
			r.flows = syns + 2*each
			r.must(r.hosts["shost"].SetTenant(4, 2*each, 2*each, 2*each))
			server := r.hosts["server"].ns
			if native {
				server = r.serveNatively()
			}
			r.answerSYNs()
			r.listen(server, echo)
			connections, client := r.dialAll(each)
			r.flood(client, syns)
			r.all(connections, 4, 1000)
			if n := r.answered(); n < 2*each+syns {
				t.Errorf("muxes answered %d SYNs, want %d", n, 2*each+syns)
			}
			begun := 0
			for s := range r.hosts["shost"].All() {
				if s.Events&(Proxied|ClientACK|ServerAnswer) != Proxied|ClientACK|ServerAnswer {
					t.Errorf("session %+v did not begin by a cookie", s)
				}
				begun++
			}
			if begun != 2*each {
				t.Errorf("the server's host has %d sessions, want %d", begun, 2*each)
			}
			r.all(connections, 4, 1000) // what the flood has evicted is learnt again
			r.allDirect(connections)
			r.kill(1)
			r.kill(0)
			r.all(connections, 4, 1000)
			r.all(connections[:2], 2, 1<<20)
			r.noDrops("drop_no_session", "drop_syncookie_pending")
		})
	}
}

// dialAll opens connections from both tenants, each pair of them with one five-tuple, and returns one tenant's client too.
func (r *realMuxes) dialAll(each int) (all []*tenantConnection, client *netns.NS) {
	r.Helper()
	for tenant, vni := range fabricTenants {
		client = r.tenant(tenant)
		r.join(r.hosts["chost"], tenant, client)
		for i := range each {
			c, err := r.dialFrom(client, vni, uint16(20000+i))
			if err != nil {
				r.dump()
				forwarded, dropped := r.seen()
				r.Fatalf("muxes forwarded %d packets, answered %d, dropped %v: %v", forwarded, r.answered(), dropped, err)
			}
			all = append(all, c)
		}
	}
	return all, client
}

// allDirect wants the client's host to know the server's host of each connection.
func (r *realMuxes) allDirect(connections []*tenantConnection) {
	r.Helper()
	flows, err := r.hosts["chost"].Flows()
	r.must(err)
	direct := 0
	for _, f := range flows {
		ours := slices.ContainsFunc(connections, func(c *tenantConnection) bool {
			return c.LocalAddr().(*net.TCPAddr).Port == int(f.Client.Port())
		})
		if ours && f.State == FlowDirect {
			direct++
		}
	}
	if direct != len(connections) {
		r.Errorf("%d of %d connections are direct", direct, len(connections))
	}
}

func sockaddrOf(a netip.Addr) (family int, to unix.Sockaddr) {
	if a.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Addr: a.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Addr: a.As16()}
}
