package forwarding

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/wire"
)

// fakeOverlay holds tables of virtual networks without a kernel.
type fakeOverlay struct {
	notes       *journal
	v4, v6      netip.Addr
	attachments map[uint32]overlay.Attachment
	keys        map[uint32][]fbt.Key
}

func (o *fakeOverlay) OverlayAddresses() (v4, v6 netip.Addr, err error) { return o.v4, o.v6, nil }

func (o *fakeOverlay) SetOverlayAddresses(v4, v6 netip.Addr) error {
	o.notes.note("vxlan to %s %s", v4, v6)
	o.v4, o.v6 = v4, v6
	return nil
}

func (o *fakeOverlay) MaxAttachments() int { return 3 }

func (o *fakeOverlay) Attachments() (map[uint32]overlay.Attachment, error) { return o.attachments, nil }

func (o *fakeOverlay) SetAttachments(rows map[uint32]overlay.Attachment) error {
	var text []string
	for _, number := range slices.Sorted(maps.Keys(rows)) {
		text = append(text, fmt.Sprintf("%d: %s in %d", number, rows[number].VIP, rows[number].VNI))
	}
	o.notes.note("attachments %v", text)
	o.attachments = rows
	return nil
}

func (o *fakeOverlay) AttachmentCounter(uint32) (model.Counter, error) { return model.Counter{}, nil }

func (o *fakeOverlay) SetVTEPs(hosts []overlay.Host) error {
	o.notes.note("vteps %d", len(hosts))
	return nil
}

func (o *fakeOverlay) SetHostKeys(makes uint32, hosts map[uint32][]fbt.Key) error {
	o.notes.note("keys of %v, made with %d", slices.Sorted(maps.Keys(hosts)), makes)
	o.keys = hosts
	return nil
}

// attachment is VIP 10.99.0.N of network 100, which is 203.0.113.N.
func attachment(n byte) vnet.Attachment {
	return vnet.Attachment{
		AttachmentKey: vnet.AttachmentKey{VNI: 100, VIP: netip.AddrFrom4([4]byte{10, 99, 0, n})},
		Service:       netip.AddrFrom4([4]byte{203, 0, 113, n}), Network: "prod",
	}
}

func server(number uint32) vnet.MuxHost {
	return vnet.MuxHost{Number: number, Name: fmt.Sprintf("host%d", number), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(number)})}, Server: true}
}

var masters = []fbt.Master{{ID: 1, Secret: [32]byte{1}}, {ID: 2, Secret: [32]byte{2}}}

// withNetworks is the update with networks whose hosts send VXLAN to 10.255.0.1.
func withNetworks(update wire.MuxUpdate, n wire.MuxNetworks) wire.MuxUpdate {
	n.Addresses, n.Masters = []netip.Addr{addr("10.255.0.1")}, masters
	update.Networks = n
	return update
}

// Keys are there before backends on their hosts are, attachments after the endpoints that they lead to, and the address is
// announced last. What leaves goes the other way round.
func TestNetworksAreProgrammedAroundEndpoints(t *testing.T) {
	b := newBench(t)
	b.state.SetNextHops(resolved("10.0.0.1"))
	b.take()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.apply(withNetworks(snapshot(5, newEndpoint(key(10), "10.0.0.1")), wire.MuxNetworks{
		Attachments: []vnet.Attachment{attachment(10)}, Hosts: []vnet.MuxHost{server(1)},
	})))
	did := b.take()
	for _, order := range [][2]string{
		{"keys of [1], made with 1", "replace by 1"},
		{"replace by 1", "vxlan to 10.255.0.1"},
		{"replace by 1", "vteps 1"},
		{"replace by 1", "attachments [1: 10.99.0.10 in 100]"},
		{"attachments [1: 10.99.0.10 in 100]", "announce [203.0.113.10/32 10.255.0.1/32]"},
	} {
		first, then := strings.Index(did, order[0]), strings.Index(did, order[1])
		if first < 0 || then < 0 || first > then {
			t.Errorf("%q is not before %q:\n%s", order[0], order[1], did)
		}
	}
	if !strings.Contains(b.discarded, "10.255.0.1/32") {
		t.Errorf("the kernel drops what comes to %s alone", b.discarded)
	}

	// An update of something else touches nothing of them.
	must(b.apply(withNetworks(wire.MuxUpdate{Generation: 6}, wire.MuxNetworks{})))
	b.did("apply +0 -0", "generation 6")

	// A backend on another host, and another attachment: the first keeps its number.
	must(b.apply(withNetworks(wire.MuxUpdate{Generation: 7, Endpoints: []model.MuxEndpoint{newEndpoint(key(10), "10.0.0.1")}}, wire.MuxNetworks{
		Attachments: []vnet.Attachment{attachment(9)}, Hosts: []vnet.MuxHost{server(2)},
	})))
	b.did("keys of [1 2], made with 1", "apply +1 -0", "vteps 2",
		"attachments [1: 10.99.0.10 in 100 2: 10.99.0.9 in 100]", "generation 7")

	// The attachment goes before the endpoint, the keys of the host after it.
	must(b.apply(withNetworks(wire.MuxUpdate{Generation: 8, Endpoints: []model.MuxEndpoint{newEndpoint(key(10), "10.0.0.1")}}, wire.MuxNetworks{
		AttachmentsRemoved: []vnet.AttachmentKey{attachment(10).AttachmentKey}, HostsRemoved: []uint32{2},
	})))
	b.did("attachments [2: 10.99.0.9 in 100]", "apply +1 -0", "vteps 1", "keys of [1], made with 1", "generation 8")

	// Without an overlay the address is withdrawn first.
	must(b.apply(wire.MuxUpdate{Generation: 9, Networks: wire.MuxNetworks{
		AttachmentsRemoved: []vnet.AttachmentKey{attachment(9).AttachmentKey}, HostsRemoved: []uint32{1},
	}}))
	b.did("announce [203.0.113.10/32]", "keys of [1], made with 0", "attachments []", "apply +0 -0", "vxlan to invalid IP invalid IP",
		"vteps 0", "keys of [], made with 0", "generation 9")
}

// Hosts without an agent are told of the VIPs of their network alone, as long as there is an address to send VXLAN to.
func TestHostsWithoutAgentAreTold(t *testing.T) {
	told, other := attachment(10), attachment(11)
	told.GatewayMAC, told.WithoutAgent, other.VNI = vnet.MAC{2, 1}, true, 200
	set := networkSet{}.next(withNetworks(wire.MuxUpdate{Snapshot: true}, wire.MuxNetworks{
		Attachments: []vnet.Attachment{told, other},
	}))
	want := bgp.MACRoute{VNI: 100, MAC: [6]byte{2, 1}, Address: addr("10.99.0.10"), VTEP: addr("10.255.0.1")}
	if o := set.routes(); !slices.Equal(o.Attached, []bgp.MACRoute{want}) || len(o.Addresses) != 1 {
		t.Errorf("announced is %+v", o)
	}
	if o := set.next(wire.MuxUpdate{}).routes(); len(o.Attached)+len(o.Addresses) != 0 {
		t.Errorf("without an overlay %+v is announced", o)
	}
}

// What has no room, and what the endpoints' tables refuse, changes nothing of the networks.
func TestRefusedUpdatesLeaveNetworks(t *testing.T) {
	b := newBench(t)
	first := withNetworks(snapshot(5, newEndpoint(key(10), "10.0.0.1")), wire.MuxNetworks{
		Attachments: []vnet.Attachment{attachment(10)}, Hosts: []vnet.MuxHost{server(1)},
	})
	if err := b.apply(first); err != nil {
		t.Fatal(err)
	}
	attachments, keys := b.datapath.attachments, b.datapath.keys
	holds := func(what string) {
		t.Helper()
		if !maps.Equal(b.datapath.attachments, attachments) || !maps.EqualFunc(b.datapath.keys, keys, slices.Equal[[]fbt.Key]) {
			t.Errorf("%s: attachments are %v, keys %v", what, b.datapath.attachments, b.datapath.keys)
		}
	}
	many := withNetworks(wire.MuxUpdate{Generation: 6}, wire.MuxNetworks{Attachments: []vnet.Attachment{attachment(1), attachment(2), attachment(3)}})
	if err := b.apply(many); err == nil || !strings.Contains(err.Error(), "4 VIPs, and the mux has room for 3") {
		t.Errorf("too many: %v", err)
	}
	holds("too many")
	twice := server(2)
	twice.Addresses = server(1).Addresses
	if err := b.apply(withNetworks(wire.MuxUpdate{Generation: 6}, wire.MuxNetworks{Hosts: []vnet.MuxHost{twice}})); err == nil {
		t.Error("two hosts have an address")
	}
	holds("an address twice")
	b.datapath.full = errors.New("full")
	leaving := withNetworks(wire.MuxUpdate{Generation: 6, Endpoints: []model.MuxEndpoint{newEndpoint(key(11), "10.0.0.2")}}, wire.MuxNetworks{
		AttachmentsRemoved: []vnet.AttachmentKey{attachment(10).AttachmentKey}, Hosts: []vnet.MuxHost{server(2)},
	})
	if err := b.apply(leaving); err == nil {
		t.Error("full tables took an update")
	}
	holds("full")
}

// A mux that starts anew announces what its tables have, and its attachments keep their numbers, whose counters go on.
func TestNetworksAreAdopted(t *testing.T) {
	b := newBench(t, newEndpoint(key(10), "10.0.0.1"))
	b.datapath.v4 = addr("10.255.0.1")
	b.datapath.attachments = map[uint32]overlay.Attachment{7: {VNI: 100, VIP: addr("10.99.0.10"), Service: addr("203.0.113.10")}}
	again, err := New(b.state.config)
	if err != nil {
		t.Fatal(err)
	}
	b.state = again
	b.take()
	b.state.Start(func([]netip.Addr) {})
	b.did("announce [203.0.113.10/32 10.255.0.1/32]")
	update := withNetworks(snapshot(8, newEndpoint(key(10), "10.0.0.1")), wire.MuxNetworks{
		Attachments: []vnet.Attachment{attachment(9), attachment(10)}, Hosts: []vnet.MuxHost{server(1)},
	})
	if err := b.apply(update); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.take(), "attachments [1: 10.99.0.9 in 100 7: 10.99.0.10 in 100]") {
		t.Errorf("attachments are %v", b.datapath.attachments)
	}
}
