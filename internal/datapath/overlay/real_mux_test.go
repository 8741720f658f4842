package overlay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/mux"
	muxoverlay "github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
)

// realMuxes are muxes of their own in the fabric, with their real programs. The router spreads what comes for the address
// that hosts send VXLAN to over them.
type realMuxes struct {
	*fabric
	muxes []*mux.Datapath
}

// Addresses of the muxes themselves, by whether they are of IPv4.
var muxAddresses = map[bool][]string{true: {"10.3.1.1", "10.3.2.1"}, false: {"fd03:1::1", "fd03:2::1"}}

func newRealMuxes(t *testing.T, name string, f family) *realMuxes {
	t.Helper()
	addresses := muxAddresses[netip.MustParseAddr(f.mux).Is4()]
	r := &realMuxes{fabric: newFabricOf(t, name, f, addresses...)}
	r.must(r.core.Sysctl("net.ipv4.fib_multipath_hash_policy", "1"), r.core.Sysctl("net.ipv6.fib_multipath_hash_policy", "1"))
	var hops []string
	for i, address := range addresses {
		r.addMux(fmt.Sprintf("mux%d", i+1), netip.MustParseAddr(address))
		hops = append(hops, "nexthop via "+address)
	}
	r.ip(r.core, "ip route add %s %s", one(f.mux), strings.Join(hops, " "))
	return r
}

func (r *realMuxes) addMux(name string, own netip.Addr) {
	r.Helper()
	bits := map[bool]int{true: 24, false: 64}[own.Is4()]
	ns, gateway := r.space(name), own.Next()
	r.must(
		netns.Veth(ns, "uplink", r.core, name), ns.AddAddress("uplink", netip.PrefixFrom(own, bits)),
		r.core.AddAddress(name, netip.PrefixFrom(gateway, bits)), ns.AddRoute(netip.PrefixFrom(zero(own), 0), gateway),
		r.core.SetOffload(name, netns.TxChecksum, false), r.core.PassXDP(name))
	mac, err := ns.MAC("uplink")
	routers, failed := r.core.MAC(name)
	r.must(err, failed)
	service := netip.MustParseAddrPort(r.service)
	settings := pool.Settings{HashKey: flowhash.Key{1, 2, 3}, MTU: 1500, MAC: [6]byte(mac)}
	if settings.Source4 = own; own.Is6() {
		settings.Source4, settings.Source6 = netip.Addr{}, own
	}
	config := mux.Config{
		Interface: "uplink", PinPath: fmt.Sprintf("/sys/fs/bpf/weir-%s%s", r.name, name), Mode: mux.Native, Log: slog.New(slog.DiscardHandler),
		MaxEndpoints: 16, MaxBuckets: 4096, MaxBackends: 64, MaxFlows: 1024, MaxSNATPorts: 65536, MaxSources: 16,
	}
	r.must(ns.Do(func() error {
		d, err := mux.Open(config)
		if err != nil {
			return err
		}
		r.muxes = append(r.muxes, d)
		return errors.Join(
			d.SetSettings(settings), d.SetOverlayAddresses(at(r.family.mux, true), at(r.family.mux, false)),
			d.SetAttachments(r.attachments()), d.SetVTEPs(r.clientHosts()),
			d.SetHostKeys(r.key.ID, map[uint32][]fbt.Key{9: {r.key}}),
			d.Replace([]model.MuxEndpoint{{
				Key:      model.EndpointKey{VIP: service.Addr(), Protocol: model.TCP, Port: service.Port()},
				Backends: []model.MuxBackend{{Slot: 1, Tunnel: netip.MustParseAddr(r.tunnel), Host: 9}},
				Buckets:  slices.Repeat([]model.Slot{1}, 256), Ping: true,
			}}),
			d.SetNextHops(map[netip.Addr]model.NextHop{
				netip.MustParseAddr(r.tunnel): {Source: [6]byte(mac), Destination: [6]byte(routers)},
			}))
	}))
	r.Cleanup(func() {
		if _, err := os.Stat(config.PinPath); err == nil {
			r.kill(len(r.muxes) - 1)
		}
	})
}

func (r *realMuxes) attachments() map[uint32]muxoverlay.Attachment {
	all := map[uint32]muxoverlay.Attachment{}
	for _, vni := range fabricTenants {
		all[vni] = muxoverlay.Attachment{
			VNI: vni, VIP: netip.MustParseAddrPort(r.vip).Addr(), Service: netip.MustParseAddrPort(r.service).Addr(),
			GatewayMAC: gatewayMAC,
		}
	}
	return all
}

func (r *realMuxes) clientHosts() []muxoverlay.Host {
	var all []muxoverlay.Host
	for number, tunnel := range map[uint32]string{7: r.host, 8: r.other, 9: r.tunnel} {
		all = append(all, muxoverlay.Host{
			Number: number, Agent: true, Server: number == 9, Addresses: []netip.Addr{netip.MustParseAddr(tunnel)}, VNIs: []uint32{100, 200},
		})
	}
	return append(all, muxoverlay.Host{Number: 10, Addresses: []netip.Addr{netip.MustParseAddr(r.bare())}, VNIs: []uint32{100, 200}})
}

// kill stops the last mux that is left: its program goes, so its packets go nowhere.
func (r *realMuxes) kill(number int) {
	r.Helper()
	r.must(r.muxes[number].Unload())
	r.muxes = slices.Delete(r.muxes, number, number+1)
}

// seen are the packets that muxes forwarded, and those that they dropped, by verdict.
func (r *realMuxes) seen() (forwarded uint64, dropped map[string]uint64) {
	r.Helper()
	dropped = map[string]uint64{}
	for _, m := range r.muxes {
		verdicts, err := m.Verdicts()
		r.must(err)
		for name, c := range verdicts {
			switch {
			case c.Packets == 0:
			case strings.HasPrefix(name, "forward_"):
				forwarded += c.Packets
			case strings.HasPrefix(name, "drop_"):
				dropped[name] += c.Packets
			}
		}
	}
	return forwarded, dropped
}

// tenantConnection is one of many from a tenant's client, from a port that the other tenant's client uses too.
type tenantConnection struct {
	net.Conn
	mark [12]byte // in all that it sends: tenant and port
	sent uint64
}

func (r *realMuxes) dialFrom(ns *netns.NS, vni uint32, port uint16) (*tenantConnection, error) {
	c := &tenantConnection{}
	binary.BigEndian.PutUint32(c.mark[:], vni)
	binary.BigEndian.PutUint16(c.mark[4:], port)
	from := netip.AddrPortFrom(netip.MustParseAddrPort(r.client).Addr(), port)
	err := ns.Do(func() (err error) {
		dialer := net.Dialer{Timeout: 20 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(from)}
		c.Conn, err = dialer.Dial("tcp", r.vip)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect from port %d of network %d: %w", port, vni, err)
	}
	r.Cleanup(func() { _ = c.Close() })
	return c, c.SetDeadline(time.Now().Add(5 * time.Minute))
}

// talk has the echo answer so many messages, none of them another connection's.
func (c *tenantConnection) talk(messages, length int) error {
	out, in := make([]byte, length), make([]byte, length)
	for range messages {
		c.sent++
		for at := 0; at+20 <= length; at += 20 {
			copy(out[at:], c.mark[:])
			binary.BigEndian.PutUint64(out[at+12:], c.sent)
		}
		if _, err := c.Write(out); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, in); err != nil {
			return err
		}
		if !slices.Equal(out, in) {
			return fmt.Errorf("connection %x got other bytes: %x", c.mark, in[:20])
		}
	}
	return nil
}

// all has each of the connections talk, at the same time.
func (r *realMuxes) all(connections []*tenantConnection, messages, length int) {
	r.Helper()
	failed := make(chan error, len(connections))
	for _, c := range connections {
		go func() { failed <- c.talk(messages, length) }()
	}
	broken := 0
	for range connections {
		if err := <-failed; err != nil {
			if broken++; broken <= 3 {
				r.Error(err)
			}
		}
	}
	if broken > 0 {
		r.dump()
		r.Fatalf("%d of %d connections broke", broken, len(connections))
	}
}

// connectAll pings the VIP from both tenants, and opens connections, each pair of them with one five-tuple.
func (r *realMuxes) connectAll(each int) []*tenantConnection {
	r.Helper()
	var wait sync.WaitGroup
	var mu sync.Mutex
	var all []*tenantConnection
	var failed []error
	for tenant, vni := range fabricTenants {
		client := r.tenant(tenant)
		r.join(r.hosts["chost"], tenant, client)
		r.ip(client, "ping -c 3 -i 0.05 -W 2 %s", netip.MustParseAddrPort(r.vip).Addr())
		wait.Go(func() {
			for i := range each {
				c, err := r.dialFrom(client, vni, uint16(20000+i))
				mu.Lock()
				if failed = append(failed, err); err == nil {
					all = append(all, c)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if err := errors.Join(failed...); err != nil {
		r.dump()
		forwarded, dropped := r.seen()
		r.Fatalf("muxes forwarded %d packets, dropped %v: %v", forwarded, dropped, err)
	}
	return all
}

// Client's host, mux, and server's host are all the real thing: two tenants' clients with equal five-tuples reach one
// server, the muxes see their SYNs, and when all muxes are gone the connections go on.
func TestTenantsReachOneServerByRealMuxes(t *testing.T) {
	const each = 100
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newRealMuxes(t, "mux"+name[1:2]+name[len(name)-1:], fabricFamily(f))
			r.flows = 2 * each
			r.must(r.hosts["shost"].SetTenant(4, r.flows, r.flows, r.flows))
			r.listen(r.hosts["server"].ns, echo)
			connections := r.connectAll(each)
			r.all(connections, 4, 1000)
			forwarded, dropped := r.seen()
			if forwarded < 2*each || forwarded > 2*each+2*each/20 || len(dropped) != 0 {
				t.Errorf("of %d connections the muxes forwarded %d packets, and dropped %v", 2*each, forwarded, dropped)
			}
			r.must(firstOf(r.muxes, func(m *mux.Datapath) bool { return forwardedBy(t, m) == 0 }))
			r.kill(1)
			r.all(connections, 4, 1000)
			r.kill(0)
			r.all(connections, 4, 1000)
			r.all(connections[:4], 4, 1<<20)
			r.noDrops()
		})
	}
}

// A client on a host without an agent reaches the VIP by the kernel's own VXLAN: each of its packets passes a mux, the
// server's answers go straight to its host, and a mux that dies loses nothing.
func TestClientsOnHostsWithoutAgent(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newRealMuxes(t, "bar"+name[1:2]+name[len(name)-1:], fabricFamily(f))
			host, client := r.connect("bhost", r.bare()), r.tenant("acme")
			r.joinOverlay(host, r.bare(), "acme", client)
			r.listen(r.hosts["server"].ns, echo)
			r.ip(client, "ping -c 3 -i 0.05 -W 2 %s", netip.MustParseAddrPort(r.vip).Addr())
			var connections []*tenantConnection
			for i := range 8 {
				c, err := r.dialFrom(client, fabricTenants["acme"], uint16(30000+i))
				r.must(err)
				connections = append(connections, c)
			}
			r.all(connections, 8, 1000)
			if forwarded, dropped := r.seen(); forwarded < 8*10 || len(dropped) != 0 {
				t.Errorf("muxes forwarded %d packets, dropped %v", forwarded, dropped)
			}
			r.kill(1)
			r.all(connections, 8, 1000)
			r.all(connections[:2], 2, 1<<20)
			r.noDrops()
		})
	}
}

// firstOf is an error if a mux is as it should not be.
func firstOf(muxes []*mux.Datapath, wrong func(*mux.Datapath) bool) error {
	if i := slices.IndexFunc(muxes, wrong); i >= 0 {
		return fmt.Errorf("mux %d forwarded nothing", i+1)
	}
	return nil
}

func forwardedBy(t *testing.T, m *mux.Datapath) (n uint64) {
	t.Helper()
	verdicts, err := m.Verdicts()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range verdicts {
		if strings.HasPrefix(name, "forward_") {
			n += c.Packets
		}
	}
	return n
}
