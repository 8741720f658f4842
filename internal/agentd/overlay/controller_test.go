package overlay_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/agentd/overlay"
	datapath "github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/wire"
)

// machine is a host with an uplink, two workloads of networks, and a backend.
type machine struct {
	*testing.T
	ns     *netns.NS
	config overlay.Config
	*overlay.Controller
}

var (
	hostAddress, muxAddress = netip.MustParseAddr("10.2.0.1"), netip.MustParseAddr("10.0.0.1")
	vipAddress, service     = netip.MustParseAddr("10.99.0.1"), netip.MustParseAddr("203.0.113.10")
	backend                 = netip.MustParseAddrPort("10.9.0.6:8080")
)

func newMachine(t *testing.T, name string) *machine {
	t.Helper()
	ns := netns.New(t, fmt.Sprintf("wnet%d%s", os.Getpid(), name))
	m := &machine{T: t, ns: ns, config: overlay.Config{
		PinPath: fmt.Sprintf("/sys/fs/bpf/weir-networks-%s-%d", name, os.Getpid()), Uplink: "uplink", Sessions: 1024, Flows: 1024,
		Seal: func() ([2]uint32, error) { return [2]uint32{1, 2}, nil }, Log: slog.New(slog.DiscardHandler),
	}}
	m.must(netns.Veth(ns, "uplink", ns, "router"), ns.AddAddress("uplink", netip.PrefixFrom(hostAddress, 24)),
		netns.Veth(ns, "acme", ns, "acme-in"), netns.Veth(ns, "bolt", ns, "bolt-in"), netns.Veth(ns, "web", ns, "web-in"),
		ns.SetMTU("acme", 1450), ns.SetMTU("bolt", 1450))
	m.start()
	t.Cleanup(func() { m.must(m.Close(), datapath.Unload(m.config.PinPath)) })
	return m
}

func (m *machine) must(errs ...error) {
	m.Helper()
	if err := errors.Join(errs...); err != nil {
		m.Fatalf("%v (these tests need root)", err)
	}
}

// start begins as a daemon does.
func (m *machine) start() {
	m.Helper()
	m.must(m.ns.Do(func() error { m.Controller = overlay.New(m.config); return nil }))
}

// networks are what a manager tells of two networks that a VIP is attached to.
func networks(change func(*wire.HostNetworks)) wire.HostNetworks {
	n := wire.HostNetworks{
		Number: 7, Own: []netip.Addr{hostAddress}, Addresses: []netip.Addr{muxAddress}, LocalPrefixes: vnet.DefaultLocalPrefixes,
		Keys: []fbt.Key{{ID: 1, Secret: [16]byte{7}}},
		Hosts: []vnet.NetworkHost{
			{Number: 7, V4: hostAddress, Client: true, Tunnels: []netip.Addr{hostAddress}},
			{Number: 8, V4: netip.MustParseAddr("10.2.0.2"), Client: true},
		},
	}
	for i, name := range []string{"acme", "bolt"} {
		vni := uint32(100 * (i + 1))
		n.Attachments = append(n.Attachments, vnet.Attachment{AttachmentKey: vnet.AttachmentKey{VNI: vni, VIP: vipAddress}, Service: service, Network: name})
		n.Networks = append(n.Networks, vnet.HostNetwork{VNI: vni, Name: name, Tenant: name, GatewayMAC: vnet.DefaultGatewayMAC, Ports: []vnet.Port{{
			Interface: name, Workload: "web", MAC: vnet.MAC{2, 0, 0, 0, 0, 1}, Addresses: []netip.Addr{netip.MustParseAddr("192.168.0.5")},
		}}})
	}
	if change != nil {
		change(&n)
	}
	return n
}

// program has the manager tell, and the agent do it.
func (m *machine) program(n wire.HostNetworks, snapshot bool) error {
	m.Note(n, nil, snapshot)
	web, err := m.ns.Index("web")
	m.must(err)
	b := model.HostBackend{
		Endpoint: model.EndpointKey{VIP: service, Protocol: model.TCP, Port: 80}, Tunnel: hostAddress, Backend: backend, IdleTimeout: time.Minute,
	}
	other := b
	other.Endpoint.VIP = netip.MustParseAddr("203.0.113.11") // attached nowhere
	return m.ns.Do(func() error {
		return m.Program(overlay.Host{
			Backends:   map[model.HostBackendKey]model.HostBackend{b.Key(): b, other.Key(): other},
			Interfaces: map[netip.Addr]int{backend.Addr(): web}, Muxes: []netip.Prefix{netip.PrefixFrom(muxAddress, 32), netip.MustParsePrefix("10.0.0.128/25")},
		})
	})
}

func (m *machine) view() *datapath.View {
	m.Helper()
	v, err := datapath.OpenView(m.config.PinPath)
	m.must(err)
	m.Cleanup(func() { _ = v.Close() })
	return v
}

// Nothing is loaded without a network; then what is told is in the tables; a restart keeps numbers, whatever is told first.
func TestNetworksAreLoadedOnDemandAndAdopted(t *testing.T) {
	m := newMachine(t, "demand")
	m.must(m.program(wire.HostNetworks{}, true))
	if _, err := datapath.OpenView(m.config.PinPath); !errors.Is(err, datapath.ErrNotLoaded) {
		t.Fatalf("without a network: %v", err)
	}
	m.must(m.program(networks(nil), true))
	attachments, rules := m.view().Attachments(), m.view().Rules()
	if len(attachments) != 2 || len(rules) != 1 || len(m.view().Ports) != 2 {
		t.Fatalf("attachments %v, rules %v, ports %v", attachments, rules, m.view().Ports)
	}
	for _, r := range rules {
		if r.Service != netip.MustParseAddrPort("203.0.113.10:80") || r.Backend != backend || r.Tunnel != hostAddress || r.IsDown || r.IdleTimeout != time.Minute {
			t.Errorf("rule %+v", r)
		}
	}
	if warnings := m.Warnings(); len(warnings) != 0 {
		t.Errorf("warnings %q", warnings)
	}
	m.must(m.Close())
	m.start()
	second := networks(func(n *wire.HostNetworks) {
		n.Attachments, n.Networks = n.Attachments[1:], n.Networks[1:] // of the first nothing is told any more
		n.Attachments = append(n.Attachments, vnet.Attachment{AttachmentKey: vnet.AttachmentKey{VNI: 200, VIP: netip.MustParseAddr("10.99.0.0")}, Service: service, Network: "bolt"})
	})
	m.must(m.program(second, true))
	for number, a := range attachments {
		is, kept := m.view().Attachments()[number]
		if a.VNI == 200 && is != a || a.VNI == 100 && kept && is.VNI == 100 {
			t.Errorf("attachment %d was %+v, is %+v", number, a, is)
		}
	}
	// Rows outlast what comes with every message, until muxes have forgotten them.
	m.must(m.program(wire.HostNetworks{}, false))
	if v := m.view(); len(v.Attachments()) != 2 || v.Local[true] != vnet.DefaultLocalPrefixes[0] || len(m.Warnings()) != 0 {
		t.Errorf("attachments %v, local prefix %s, warnings %q", v.Attachments(), v.Local[true], m.Warnings())
	}
	// A delta that takes the rest away has the programs go, once no session is left.
	m.must(m.program(wire.HostNetworks{AttachmentsRemoved: []vnet.AttachmentKey{{VNI: 200, VIP: vipAddress}, {VNI: 200, VIP: netip.MustParseAddr("10.99.0.0")}}}, false))
	ctx, stop := t.Context(), make(chan struct{})
	go func() { defer close(stop); _ = m.ns.Do(func() error { return m.Controller.Run(ctx) }) }()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err := datapath.OpenView(m.config.PinPath); errors.Is(err, datapath.ErrNotLoaded) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the programs stay, though there is no network")
		}
	}
	if out, err := m.ns.Run("ip", "-br", "link"); err != nil || strings.Contains(out, "weir-vxlan") {
		t.Errorf("a device is left: %s, %v", out, err)
	}
}

// What is wrong with one workload, or one network, is a warning; what is wrong with the host is an error.
func TestWhatIsWrongIsTold(t *testing.T) {
	warned := func(m *machine, what string) {
		t.Helper()
		if !slices.ContainsFunc(m.Warnings(), func(w string) bool { return strings.Contains(w, what) }) {
			t.Errorf("warnings %q, want one with %q", m.Warnings(), what)
		}
	}
	m := newMachine(t, "wrong")
	m.must(m.program(networks(func(n *wire.HostNetworks) { n.Networks[0].Ports[0].Interface = "vnet7" }), true))
	warned(m, "interface vnet7 not found")
	if n := len(m.view().Ports); n != 1 {
		t.Errorf("%d ports", n)
	}
	m.must(m.ns.SetMTU("acme", 1500), m.program(networks(nil), true))
	warned(m, "there is room for 1450 in VXLAN by uplink, whose MTU is 1500")
	m.must(m.program(networks(func(n *wire.HostNetworks) { n.Networks[0].Ports[0].Interface = "uplink" }), true))
	warned(m, "uplink is the uplink")
	m.must(m.program(networks(func(n *wire.HostNetworks) { n.Addresses = []netip.Addr{netip.MustParseAddr("fd00::1")} }), true))
	warned(m, "has no address of that family")
	m.must(m.program(networks(func(n *wire.HostNetworks) { n.Networks[1].Ports[0].Interface = "acme" }), true))
	warned(m, "workload web of network bolt can't reach VIPs: its interface, acme, or its address is another workload's too")
	if ports := m.view().Ports; len(ports) != 1 || ports[0].VNI != 100 {
		t.Errorf("of two workloads at one interface these are ports: %v", ports)
	}
	m.must(m.program(networks(func(n *wire.HostNetworks) { n.Networks = n.Networks[1:] }), true))
	warned(m, "10.99.0.1 is not attached to network 100: nothing is told of that")
	if all := slices.Collect(maps.Values(m.view().Attachments())); len(all) != 1 || all[0].VNI != 200 {
		t.Errorf("beside an attachment of no network there are %v", all)
	}
	m.must(m.program(networks(func(n *wire.HostNetworks) { n.LocalPrefixes = []netip.Prefix{netip.MustParsePrefix("100.96.0.0/11")} }), true))
	if local := m.view().Local[true]; local != netip.MustParsePrefix("100.96.0.0/11") {
		t.Errorf("local prefix is %s, and no session had the old one", local)
	}
	m.must(m.ns.DeleteLink("uplink"))
	if err := m.program(networks(nil), true); err == nil || !strings.Contains(err.Error(), "interface uplink not found") {
		t.Errorf("without the uplink: %v", err)
	}
}
