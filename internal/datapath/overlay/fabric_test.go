package overlay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/overlay/reset"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/pkt"
)

// fabric is hosts of clients and one of servers around a router, which is the mux, too:
//
//	acme 192.168.0.5 ─ acme ┬ br100 ─ vx100 ─ chost 10.2.0.1 ┐
//	bolt 192.168.0.5 ─ bolt ┴ br200 ─ vx200                  core: mux 10.0.0.1 ─── shost 10.1.0.5 ─ server
//	                    (the same networks)  chost2 10.2.0.2 ┘
//
// Bridges and vxlan devices are the tenants' own overlay, in which the VIPs' Ethernet address leads to the mux.
type fabric struct {
	*testing.T
	family
	name  string
	key   fbt.Key
	core  *netns.NS
	hosts map[string]*overlayHost
	mux   *standInMux
	muxes []string // addresses that they send from
	flows uint32   // most of a port
	vxlan string   // options of the tenants' own VXLAN devices
}

// overlayHost is a host with the programs.
type overlayHost struct {
	*Datapath
	ns     *netns.NS
	config Config
	name   string
	ports  []Port
	fabric *fabric
}

var fabricTenants = map[string]uint32{"acme": 100, "bolt": 200} // VNIs

// newFabric has a mux that the test plays.
func newFabric(t *testing.T, name string, f family) *fabric {
	t.Helper()
	b := newFabricOf(t, name, f, f.mux)
	b.must(b.core.AddAddress("lo", one(f.mux)), b.core.SetUp("lo"))
	b.mux = &standInMux{fabric: b}
	b.must(b.mux.start())
	return b
}

// newFabricOf has hosts that know muxes by these addresses, and nobody at the address that they send VXLAN to, f.mux.
func newFabricOf(t *testing.T, name string, f family, muxes ...string) *fabric {
	t.Helper()
	b := &fabric{
		T: t, family: f, name: fmt.Sprintf("wfab%d%s-", os.Getpid(), name), key: fbt.Key{Secret: [16]byte{7}, ID: 1},
		hosts: map[string]*overlayHost{}, muxes: muxes, flows: 100, vxlan: "nolearning udp6zerocsumrx",
	}
	b.core = b.space("core")
	b.must(b.core.Sysctl("net.ipv4.ip_forward", "1"), b.core.Sysctl("net.ipv6.conf.all.forwarding", "1"))
	for name, a := range map[string]string{"chost": f.host, "chost2": f.other, "shost": f.tunnel} {
		b.addHost(name, a)
	}
	b.serve()
	return b
}

// space makes a namespace whose interfaces have link-local addresses at once, so that neighbors are asked without delay.
func (b *fabric) space(name string) *netns.NS {
	b.Helper()
	ns := netns.New(b, b.name+name)
	b.must(ns.Sysctl("net.ipv6.conf.default.accept_dad", "0"), ns.Sysctl("net.ipv6.conf.all.accept_dad", "0"))
	return ns
}

func (b *fabric) must(errs ...error) {
	b.Helper()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

func one(a string) netip.Prefix {
	addr := netip.MustParseAddr(a)
	return netip.PrefixFrom(addr, addr.BitLen())
}

// ip runs ip(8) or bridge(8).
func (b *fabric) ip(ns *netns.NS, command string, args ...any) {
	b.Helper()
	words := strings.Fields(fmt.Sprintf(command, args...))
	if out, err := ns.Run(words[0], words[1:]...); err != nil {
		b.Fatalf("%s: %v: %s", strings.Join(words, " "), err, out)
	}
}

// connect makes the namespace of a host, with an uplink.
func (b *fabric) connect(name, tunnel string) *netns.NS {
	b.Helper()
	ns := b.space(name)
	of := netip.PrefixFrom(netip.MustParseAddr(tunnel), 24)
	if of.Addr().Is6() {
		of = netip.PrefixFrom(of.Addr(), 64)
	}
	gateway := of.Masked().Addr().Next()
	for range 200 {
		gateway = gateway.Next()
	}
	b.must(
		netns.Veth(ns, "uplink", b.core, name), ns.SetUp("lo"), ns.AddAddress("uplink", of),
		b.core.AddAddress(name, netip.PrefixFrom(gateway, gateway.BitLen())), b.core.AddLinkRoute(one(tunnel), name),
		ns.AddRoute(netip.PrefixFrom(zero(gateway), 0), gateway))
	return ns
}

func (b *fabric) addHost(name, tunnel string) {
	b.Helper()
	h := &overlayHost{ns: b.connect(name, tunnel), name: name, config: testConfig, fabric: b}
	h.config.PinPath = fmt.Sprintf("/sys/fs/bpf/weir-%s%s", b.name, name)
	h.config.Flows = 1000
	b.hosts[name] = h
	var err error
	h.config.Uplink, err = h.ns.Index("uplink")
	b.must(err)
	h.open()
	b.Cleanup(func() {
		if err := h.Unload(); err != nil {
			b.Error(err)
		}
	})
}

// tunnelOf is a host's tunnel address.
func (b *fabric) tunnelOf(h *overlayHost) string {
	return map[string]string{"chost": b.host, "chost2": b.other, "shost": b.tunnel}[h.name]
}

// open loads the programs, and tells them what every host is told.
func (h *overlayHost) open() {
	b := h.fabric
	b.Helper()
	attachments := map[uint32]Attachment{}
	for tenant, vni := range fabricTenants {
		attachments[vni] = Attachment{
			VNI: vni, VIP: netip.MustParseAddrPort(b.vip).Addr(), Service: netip.MustParseAddrPort(b.service).Addr(),
			Tenant: uint32(len(tenant)), GatewayMAC: gatewayMAC,
		}
	}
	host := func(number uint32, roles Role, a string) Host {
		return Host{Number: number, Roles: roles, V4: at(a, true), V6: at(a, false)}
	}
	hosts := []Host{host(7, Client, b.host), host(8, Client, b.other), host(9, Server|Client, b.tunnel)}
	hosts = append(hosts, host(10, Bare, b.bare()))
	for _, mux := range b.muxes {
		hosts = append(hosts, host(0, Mux, mux))
	}
	own := b.tunnelOf(h)
	b.must(h.ns.Do(func() (err error) {
		if h.Datapath, err = Open(h.config); err != nil {
			return err
		}
		return errors.Join(
			h.SetKeys([]fbt.Key{b.key}), h.SetAttachments(attachments),
			h.SetHosts(hosts),
			h.SetUnderlay(Underlay{
				Own4: at(own, true), Own6: at(own, false), Mux4: at(b.family.mux, true), Mux6: at(b.family.mux, false),
			}),
			h.SetTenant(4, b.flows, b.flows, b.flows), h.SetPorts(h.ports))
	}))
}

// bare is the VTEP of a host without an agent, which only some tests have.
func (b *fabric) bare() string { return netip.MustParseAddr(b.other).Next().String() }

// serve has the server's host deliver to a backend behind an interface.
func (b *fabric) serve() {
	b.Helper()
	h, server := b.hosts["shost"], b.space("server")
	b.hosts["server"] = &overlayHost{ns: server}
	backend := netip.MustParseAddrPort(b.dip)
	bits := map[bool]int{true: 24, false: 64}[backend.Addr().Is4()]
	gateway := netip.PrefixFrom(backend.Addr(), bits).Masked().Addr().Next()
	b.must(
		netns.Veth(h.ns, "eth0", server, "eth0"), server.SetUp("lo"),
		h.ns.AddAddress("eth0", netip.PrefixFrom(gateway, bits)), server.AddAddress("eth0", netip.PrefixFrom(backend.Addr(), bits)),
		server.AddRoute(netip.PrefixFrom(zero(backend.Addr()), 0), gateway))
	ifindex, err := h.ns.Index("eth0")
	b.must(err,
		h.SetRules(map[uint32]Rule{1: {
			Service: netip.MustParseAddrPort(b.service), Tunnel: netip.MustParseAddr(b.tunnel), Backend: backend, Ifindex: uint32(ifindex),
		}}),
		h.ns.Do(func() error { return h.SetInterfaces([]int{ifindex}) }))
	counters := map[Backend]uint32{}
	for _, vni := range fabricTenants {
		counters[Backend{Attachment: vni, Rule: 1}] = vni
	}
	b.must(h.SetBackends(counters))
}

func zero(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// tenant makes the namespace of a tenant's client.
func (b *fabric) tenant(name string) *netns.NS { return b.space(name) }

// join connects a client to a host, as the tenant's overlay has it. The host's programs know the port.
func (b *fabric) join(h *overlayHost, tenant string, client *netns.NS) {
	b.Helper()
	b.joinOverlay(h.ns, b.tunnelOf(h), tenant, client)
	vni, own := fabricTenants[tenant], netip.MustParseAddrPort(b.client).Addr()
	ifindex, err := h.ns.Index(tenant)
	b.must(err)
	h.ports = append(h.ports, Port{Ifindex: ifindex, VNI: vni, MAC: clientMAC, Addresses: []netip.Addr{own}, Flows: b.flows})
	b.must(h.ns.Do(func() error { return h.SetPorts(h.ports) }))
}

// joinOverlay connects a client to a host's VTEP of the tenant's own overlay, in which the mux is known by static entries.
func (b *fabric) joinOverlay(host *netns.NS, local, tenant string, client *netns.NS) {
	b.Helper()
	vni, vip := fabricTenants[tenant], netip.MustParseAddrPort(b.vip).Addr()
	own := netip.MustParseAddrPort(b.client).Addr()
	b.must(netns.Veth(host, tenant, client, "eth0"), client.SetMAC("eth0", clientMAC))
	b.must(client.AddAddress("eth0", netip.PrefixFrom(own, own.BitLen())))
	b.ip(client, "ip route add %s dev eth0", one(vip.String()))
	b.ip(client, "ip neigh add %s lladdr 02:09:00:00:00:00 dev eth0 nud permanent", vip)
	b.ip(host, "ip link add br%d type bridge", vni)
	b.ip(host, "ip link add vx%d type vxlan id %d local %s dstport 4789 %s", vni, vni, local, b.vxlan)
	for _, device := range []string{fmt.Sprintf("vx%d", vni), tenant} {
		b.ip(host, "ip link set %s master br%d up", device, vni)
	}
	b.ip(host, "ip link set br%d up", vni)
	b.ip(host, "bridge fdb add 02:09:00:00:00:00 dev vx%d dst %s", vni, b.family.mux)
	b.ip(host, "bridge fdb add 02:09:00:00:00:00 dev vx%d master static", vni)
}

// leave takes the client from a host.
func (b *fabric) leave(h *overlayHost, tenant string) {
	b.Helper()
	vni := fabricTenants[tenant]
	h.ports = slices.DeleteFunc(h.ports, func(p Port) bool { return p.VNI == vni })
	b.must(h.ns.Do(func() error { return h.SetPorts(h.ports) }),
		h.ns.DeleteLink(tenant), h.ns.DeleteLink(fmt.Sprintf("vx%d", vni)), h.ns.DeleteLink(fmt.Sprintf("br%d", vni)))
}

// standInMux receives VXLAN at the mux's address and sends each segment, with an FBT, to the server's host.
type standInMux struct {
	fabric       *fabric
	in, out      int
	packets      atomic.Uint64
	withoutRoute atomic.Uint64
}

func (m *standInMux) start() error {
	b := m.fabric
	err := b.core.Do(func() (err error) {
		of, bind := reset.Sockaddr(netip.MustParseAddr(b.family.mux), pkt.VXLANPort)
		if m.in, err = unix.Socket(of, unix.SOCK_DGRAM, 0); err != nil {
			return err
		}
		s := &site{rig: &rig{family: b.family}}
		m.out, err = s.muxSocket()
		return errors.Join(err, unix.Bind(m.in, bind),
			unix.SetsockoptTimeval(m.in, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50000}),
			unix.SetsockoptInt(m.in, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1),
			unix.SetsockoptInt(m.in, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20))
	})
	if err != nil {
		return err
	}
	if netip.MustParseAddr(b.family.mux).Is6() {
		if err := unix.SetsockoptInt(m.in, unix.SOL_UDP, unix.UDP_NO_CHECK6_RX, 1); err != nil {
			return err
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go m.run(stop, stopped)
	b.Cleanup(func() { close(stop); <-stopped; _, _ = unix.Close(m.in), unix.Close(m.out) })
	return nil
}

func (m *standInMux) run(stop, stopped chan struct{}) {
	defer close(stopped)
	hosts := map[netip.Addr]uint32{netip.MustParseAddr(m.fabric.host): 7, netip.MustParseAddr(m.fabric.other): 8, netip.MustParseAddr(m.fabric.tunnel): 9}
	buffer := make([]byte, 1<<16)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, from, err := unix.Recvfrom(m.in, buffer, 0)
		if err != nil || n < 8+14+40 {
			continue
		}
		source := netip.Addr{}
		switch a := from.(type) {
		case *unix.SockaddrInet4:
			source = netip.AddrFrom4(a.Addr)
		case *unix.SockaddrInet6:
			source = netip.AddrFrom16(a.Addr)
		}
		if out := m.insert(buffer[:n], hosts[source]); out != nil {
			m.packets.Add(1)
			_, _ = unix.Write(m.out, out)
		}
	}
}

// insert puts the FBT into a VXLAN packet's segment; nil: it is none.
func (m *standInMux) insert(p []byte, host uint32) []byte {
	const mac = 14
	v4 := p[8+12] == 0x08
	l3, protocol, l4 := 8+mac, byte(0), 8+mac+20
	if v4 {
		protocol = p[l3+9]
	} else {
		protocol, l4 = p[l3+6], l4+20
	}
	if protocol != 6 || len(p) < l4+20 {
		return nil
	}
	if p[7] != pkt.Route {
		m.withoutRoute.Add(1)
	}
	addr := func(b []byte) netip.Addr { a, _ := netip.AddrFromSlice(b); return a }
	from, to := addr(p[l4-8:l4-4]), addr(p[l4-4:l4])
	if !v4 {
		from, to = addr(p[l4-32:l4-16]), addr(p[l4-16:l4])
	}
	segment := p[l4:]
	option := fbt.Encode(m.fabric.key, fbt.Segment{
		Outer: netip.MustParseAddr(m.fabric.tunnel), Seq: binary.BigEndian.Uint32(segment[4:]),
		Client: netip.AddrPortFrom(from, binary.BigEndian.Uint16(segment)), VIP: netip.AddrPortFrom(to, binary.BigEndian.Uint16(segment[2:])),
	}, fbt.Content{VNI: binary.BigEndian.Uint32(p[4:]) >> 8, Number: host}) // hosts answer directly
	out := slices.Concat(p[:l4+20], option[:], p[l4+20:])
	out[7] = 0
	ip, segment := out[l3:l4], out[l4:]
	segment[12] += fbt.Length / 4 << 4
	segment[16], segment[17] = 0, 0
	summed := slices.Concat(from.AsSlice(), to.AsSlice(), segment, make([]byte, len(segment)%2))
	binary.BigEndian.PutUint16(segment[16:], reset.Checksum(summed, 6+uint32(len(segment))))
	if !v4 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(segment)))
		return out
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+len(segment)))
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], reset.Checksum(ip, 0))
	return out
}
