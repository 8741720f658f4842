package publish

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

const (
	netHosts = 4
	netVIPs  = 3
	netNets  = 3
)

// netDelta is the delta of one write of virtual networks.
func netDelta() store.Delta {
	return store.Delta{VIPs: map[string]bool{}, Networks: map[string]bool{}, Nodes: map[string]bool{}, HostNumbers: map[string]bool{}}
}

// drawNetworkWrite writes something of virtual networks, or nothing that matters to them.
func drawNetworkWrite(t *rapid.T, s *store.State) store.Delta {
	delta := netDelta()
	some := func(kind string, n int) string { return fmt.Sprintf("%s%d", kind, rapid.IntRange(1, n).Draw(t, kind)) }
	switch rapid.IntRange(0, 7).Draw(t, "write") {
	case 0, 1:
		name := some("net", netNets)
		delta.Networks[name] = true
		if s.Networks.Remove(name); rapid.IntRange(0, 5).Draw(t, "gone") > 0 {
			s.Networks.Put(drawNetworkOf(t, name))
		}
	case 2, 3:
		name := some("vip", netVIPs)
		delta.VIPs[name] = true
		if rapid.IntRange(0, 5).Draw(t, "gone") == 0 {
			s.RemoveVIP(name)
		} else {
			s.PutVIP(drawAttachedVIP(t, name))
		}
	case 4:
		name := some("host", netHosts)
		delta.Nodes[name] = true
		if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
			s.RemoveNode(name)
		} else {
			s.PutNode(model.Node{Name: name, Role: model.RoleHost, Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", rapid.IntRange(0, 1).Draw(t, "subnet"), name[4]-'0'))}})
		}
	case 5:
		delta.Overlay = true
		if s.Networks.Overlay = nil; rapid.Bool().Draw(t, "overlay") {
			s.Networks.Overlay = &vnet.Overlay{Addresses: []netip.Addr{netip.MustParseAddr("10.255.0.1")}, LocalPrefixes: vnet.DefaultLocalPrefixes}
		}
	case 6:
		host, number := some("host", netHosts), uint32(0)
		number = uint32(host[4]-'0') + 4*rapid.Uint32Range(0, 1).Draw(t, "number")
		if i := rapid.IntRange(0, 2*len(netVTEPs)).Draw(t, "vtep"); i < len(netVTEPs) {
			host, number = network.VTEPName(netVTEPs[i]), uint32(20+i)
		}
		delta.HostNumbers[host] = true
		if s.Networks.Numbers.Remove(host); rapid.IntRange(0, 3).Draw(t, "gone") > 0 {
			s.Networks.Numbers.Put(host, network.Number{Number: number})
		}
	case 7:
		delta.VIPs["plain"] = true
		s.PutVIP(model.VIP{Name: "plain", Tenant: "b", Address: netip.MustParseAddr("203.0.113.99")})
	}
	return delta
}

// netVTEPs are of hosts without an agent; one may be an address of host1 too.
var netVTEPs = []netip.Addr{netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("10.8.0.2")}

func drawNetworkOf(t *rapid.T, name string) vnet.Network {
	k := uint32(name[3] - '0')
	n := vnet.Network{
		Name: name, Tenant: "a", VNI: k + 10*rapid.Uint32Range(0, 1).Draw(t, "vni"), GatewayMAC: vnet.DefaultGatewayMAC,
		AllowedTenants: rapid.SampledFrom([][]string{nil, {"b"}}).Draw(t, "allowed"),
		WithoutAgent:   netVTEPs[:rapid.IntRange(0, len(netVTEPs)).Draw(t, "without agent")],
		Reply:          rapid.SampledFrom([]vnet.Reply{vnet.ReplyRelay, vnet.ReplyDirect}).Draw(t, "reply"),
	}
	for i := range netHosts {
		for j := range rapid.IntRange(0, 2).Draw(t, "workloads") {
			n.Workloads = append(n.Workloads, vnet.Workload{Name: fmt.Sprintf("w%d-%d", i, j), Host: fmt.Sprintf("host%d", i+1), Interface: fmt.Sprintf("v%d-%d", k, j)})
		}
	}
	return n
}

func drawAttachedVIP(t *rapid.T, name string) model.VIP {
	k := name[3] - '0'
	vip := model.VIP{
		Name: name, Tenant: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant"), Address: netip.AddrFrom4([4]byte{203, 0, 113, k + 10*rapid.ByteRange(0, 1).Draw(t, "service")}),
		Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80}},
	}
	for i := range netHosts {
		if rapid.IntRange(0, 2).Draw(t, "backend") == 0 {
			vip.Endpoints[0].Backends = append(vip.Endpoints[0].Backends, model.Backend{
				Host: fmt.Sprintf("host%d", i+1), Address: netip.AddrFrom4([4]byte{10, 3, byte(i + 1), rapid.ByteRange(1, 2).Draw(t, "dip")}), Port: 80,
			})
		}
	}
	for i := range netNets {
		if rapid.Bool().Draw(t, "attached") {
			vip.Attachments = append(vip.Attachments, model.Attachment{
				Network: fmt.Sprintf("net%d", i+1), Address: netip.AddrFrom4([4]byte{10, 9, 0, k + 10*rapid.ByteRange(0, 1).Draw(t, "address")}), Mode: rapid.SampledFrom([]model.AttachmentMode{model.ModeBypass, model.ModeFullNAT}).Draw(t, "mode"),
			})
		}
	}
	return vip
}

// ranMux is a mux that applies updates.
type ranMux struct {
	attachments map[vnet.AttachmentKey]vnet.Attachment
	hosts       map[uint32]vnet.MuxHost
}

func (m *ranMux) apply(n wire.MuxNetworks, snapshot bool) {
	if snapshot {
		*m = ranMux{map[vnet.AttachmentKey]vnet.Attachment{}, map[uint32]vnet.MuxHost{}}
	}
	for _, a := range n.Attachments {
		m.attachments[a.AttachmentKey] = a
	}
	for _, key := range n.AttachmentsRemoved {
		delete(m.attachments, key)
	}
	for _, h := range n.Hosts {
		m.hosts[h.Number] = h
	}
	for _, number := range n.HostsRemoved {
		delete(m.hosts, number)
	}
}

// ranHost is a host that applies updates, beside what was asked of its feed.
type ranHost struct {
	sent sentNetworks
	runs nodeconfig.Networks
	now  wire.HostNetworks
}

func (h *ranHost) apply(n wire.HostNetworks, snapshot bool) {
	if snapshot {
		h.runs = nodeconfig.Networks{
			Attachments: map[vnet.AttachmentKey]vnet.Attachment{}, Hosts: map[uint32]vnet.NetworkHost{}, Networks: map[uint32]vnet.HostNetwork{},
		}
	}
	for _, a := range n.Attachments {
		h.runs.Attachments[a.AttachmentKey] = a
	}
	for _, key := range n.AttachmentsRemoved {
		delete(h.runs.Attachments, key)
	}
	for _, of := range n.Hosts {
		h.runs.Hosts[of.Number] = of
	}
	for _, number := range n.HostsRemoved {
		delete(h.runs.Hosts, number)
	}
	for _, of := range n.Networks {
		h.runs.Networks[of.VNI] = of
	}
	for _, vni := range n.NetworksRemoved {
		delete(h.runs.Networks, vni)
	}
	h.now = n
}

// holds says in what the host differs from what it must have at least, or at most.
func (h *ranHost) holds(want nodeconfig.Networks, exactly bool) error {
	for key, is := range want.Attachments {
		if h.runs.Attachments[key] != is {
			return fmt.Errorf("attachment %v is %v, not %v", key, h.runs.Attachments[key], is)
		}
	}
	for number, is := range want.Hosts {
		if !h.runs.Hosts[number].Equal(is) {
			return fmt.Errorf("host %d is %v, not %v", number, h.runs.Hosts[number], is)
		}
	}
	for vni, is := range want.Networks {
		if !h.runs.Networks[vni].Equal(is) {
			return fmt.Errorf("network %d is %v, not %v", vni, h.runs.Networks[vni], is)
		}
	}
	if exactly && len(h.runs.Attachments)+len(h.runs.Hosts)+len(h.runs.Networks) != len(want.Attachments)+len(want.Hosts)+len(want.Networks) {
		return fmt.Errorf("has %v, and should have %v", h.runs, want)
	}
	if h.now.Number != want.Number || !slices.Equal(h.now.Own, want.Own) || want.IsServer != (len(h.now.Keys) > 0) {
		return fmt.Errorf("is told %+v, and should be %+v", h.now, want)
	}
	return nil
}

// networkWorld is a mux and hosts that follow what is written.
type networkWorld struct {
	s      *store.State
	mux    ranMux
	hosts  []ranHost
	before []nodeconfig.Networks // of each host, at the last write
}

func hostName(i int) string { return fmt.Sprintf("host%d", i+1) }

func newNetworkWorld(t *rapid.T) *networkWorld {
	s := &store.State{Generation: 1, FBTMasters: []fbt.Master{{ID: 1}, {ID: 2}}}
	s.Networks.Overlay = &vnet.Overlay{Addresses: []netip.Addr{netip.MustParseAddr("10.255.0.1")}, LocalPrefixes: vnet.DefaultLocalPrefixes}
	for i := range netHosts {
		s.PutNode(model.Node{Name: hostName(i), Role: model.RoleHost, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}})
		s.Networks.Numbers.Put(hostName(i), network.Number{Number: uint32(i + 1)})
		s.Networks.Put(drawNetworkOf(t, fmt.Sprintf("net%d", i%netNets+1)))
	}
	for i, vtep := range netVTEPs {
		s.Networks.Numbers.Put(network.VTEPName(vtep), network.Number{Number: uint32(20 + i)})
	}
	w := &networkWorld{s: s, mux: beginningMux(s), hosts: make([]ranHost, netHosts), before: make([]nodeconfig.Networks, netHosts)}
	for i := range w.hosts {
		update := wire.HostUpdate{Snapshot: true}
		w.hosts[i].sent.addTo(&update, s, hostName(i), true, 1)
		w.hosts[i].apply(update.Networks, true)
		w.before[i] = nodeconfig.NetworksOf(s.State, hostName(i))
	}
	return w
}

// beginningMux is one that got a snapshot.
func beginningMux(s *store.State) (m ranMux) {
	whole := muxNetworks(s)
	addAllNetworks(&whole, s)
	m.apply(whole, true)
	return m
}

// follow has a host get what changed, and then what muxes have confirmed to be gone.
func (w *networkWorld) follow(t *rapid.T, i int, touched bool) {
	host, name := &w.hosts[i], hostName(i)
	is := nodeconfig.NetworksOf(w.s.State, name)
	if !touched && !reflect.DeepEqual(is, w.before[i]) {
		t.Fatalf("%s is not told that it has\n%+v, and no more\n%+v", name, is, w.before[i])
	}
	update := wire.HostUpdate{}
	leaving := host.sent.addTo(&update, w.s, name, touched, w.s.Generation-1)
	host.apply(update.Networks, false)
	if err := host.holds(is, false); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	for key := range w.before[i].Attachments {
		if _, has := host.runs.Attachments[key]; !has {
			t.Fatalf("%s lost %v before muxes did", name, key)
		}
	}
	if leaving != 0 {
		update := wire.HostUpdate{}
		if host.sent.addTo(&update, w.s, name, true, w.s.Generation) != 0 {
			t.Fatalf("%s waits for more than the newest generation", name)
		}
		host.apply(update.Networks, false)
	}
	if err := host.holds(is, true); err != nil {
		t.Fatalf("%s, in the end: %v", name, err)
	}
	w.before[i] = is
}

// Whatever is written in whatever order, a mux and a host that got what changed run what one that begins anew gets. A
// host keeps what muxes may still use, and no longer.
func TestNetworkChangesLeadToTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newNetworkWorld(t)
		for range rapid.IntRange(1, 25).Draw(t, "writes") {
			old := w.s
			w.s = w.s.Clone()
			w.s.Generation++
			changed, touched := newNetworkChanges(old, w.s, drawNetworkWrite(t, w.s))
			n := muxNetworks(w.s)
			addNetworkChanges(&n, w.s, []muxChanges{{generation: w.s.Generation, networks: changed}})
			w.mux.apply(n, false)
			if want := beginningMux(w.s); !reflect.DeepEqual(w.mux, want) {
				t.Fatalf("a mux has\n%+v, want\n%+v", w.mux, want)
			}
			for i := range w.hosts {
				w.follow(t, i, touched[hostName(i)])
			}
		}
	})
}
