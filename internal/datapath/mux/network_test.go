package mux

import (
	"bytes"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// Ends of connections in virtual networks, and their hosts: see oracle_network_test.go.
const (
	tenant4, tenantVIP4 = "192.168.0.5:40000", "10.99.0.1:80"
	tenant6, tenantVIP6 = "[fd12::5]:40000", "[fd12::99]:80"
	agentHost           = "10.2.0.1"
)

// inVXLAN is a packet of network 100 from a host, to the muxes.
func inVXLAN(p pkt.Packet, from string) pkt.VXLAN {
	v := pkt.VXLAN{
		Source: p.Source, Destination: testMAC, VNI: 100, SourcePort: 50000, Reserved: [4]byte{3: pkt.Route},
		Outer: pkt.IP{Source: netip.MustParseAddr(from), Destination: overlay4, TTL: 64, TOS: 3},
	}
	if v.Outer.Source.Is6() {
		v.Outer.Destination = overlay6
	}
	return v
}

// networkCase is a packet in VXLAN, with one thing of it changed.
func networkCase(name, verdict string, p pkt.Packet, change func(*pkt.VXLAN)) packetCase {
	v := inVXLAN(p, agentHost)
	if change != nil {
		change(&v)
	}
	return packetCase{
		name: name, verdict: verdict, packet: p, change: withNetworks(nil),
		damage: func([]byte) []byte { return v.Frame(p) },
	}
}

// withNetworks attaches the VIPs of world() to networks, whose backends are on host 1.
func withNetworks(edit func(*model.MuxEndpoint)) func(*testing.T, *Datapath) {
	return func(t *testing.T, d *Datapath) {
		t.Helper()
		setNetworks(t, d)
		for _, e := range world() {
			for i := range e.Backends {
				e.Backends[i].Host = 1
			}
			if edit != nil {
				edit(&e)
			}
			apply(t, d, e)
		}
	}
}

func networkCases() []packetCase {
	syn, syn6 := pkt.TCP(tenant4, tenantVIP4, pkt.SYN, pkt.MSS(1394)), pkt.TCP(tenant6, tenantVIP6, pkt.SYN, pkt.MSS(1354))
	tooLong := pkt.Payload(bytes.Repeat([]byte{7}, testMTU-20-30-16-40+1))
	forwarded := func(c packetCase) packetCase {
		c.check = checkBypass
		return c
	}
	altered := func(c packetCase, edit func(*model.MuxEndpoint)) packetCase {
		c.change = withNetworks(edit)
		return c
	}
	return []packetCase{
		forwarded(networkCase("of a network", "forward_syn", syn, nil)),
		forwarded(networkCase("of a network, v6", "forward_syn", syn6, nil)),
		forwarded(networkCase("of a network, by v6", "forward_syn", syn, func(v *pkt.VXLAN) { *v = inVXLAN(syn, "fd02::1") })),
		forwarded(networkCase("of a network, v6 by v6", "forward_syn", syn6, func(v *pkt.VXLAN) { *v = inVXLAN(syn6, "fd02::1") })),
		forwarded(networkCase("of a network, from a host without an agent", "forward_syn", syn, func(v *pkt.VXLAN) {
			v.Outer.Source, v.Reserved = netip.MustParseAddr("10.2.0.2"), [4]byte{}
		})),
		forwarded(networkCase("of a network, later", "forward_bucket", syn.With(func(p *pkt.Packet) { p.Flags = pkt.ACK }), nil)),
		networkCase("reserved bit", "drop_vxlan", syn, func(v *pkt.VXLAN) { v.Reserved[0] = 1 }),
		networkCase("stranger", "drop_not_a_vtep", syn, func(v *pkt.VXLAN) { v.Outer.Source = netip.MustParseAddr("10.7.7.7") }),
		networkCase("network that the host has no workload of", "drop_not_a_vtep", syn, func(v *pkt.VXLAN) {
			v.VNI, v.Outer.Source = 0xabcdef, netip.MustParseAddr("10.2.0.3")
		}),
		networkCase("other network", "drop_no_attachment", syn, func(v *pkt.VXLAN) { v.VNI = 101 }),
		networkCase("no VIP", "drop_no_attachment", pkt.TCP(tenant4, "10.99.0.77:80", pkt.SYN), nil),
		networkCase("other port of a network's VIP", "drop_no_endpoint", pkt.TCP(tenant4, "10.99.0.1:22", pkt.SYN), nil),
		networkCase("neither TCP nor UDP in a network", "drop_inner_other", pkt.UDP(tenant4, tenantVIP4, pkt.Protocol(47)), nil),
		networkCase("from the VIP itself", "drop_martian", pkt.TCP("10.99.0.1:40000", tenantVIP4, pkt.SYN), nil),
		networkCase("behind options of IP", "drop_fbt_no_room", syn.With(pkt.IPOptions(4)), nil),
		altered(networkCase("too big with the FBT", "drop_too_big", pkt.TCP(tenant4, tenantVIP4, pkt.ACK, tooLong), nil), nil),
		altered(networkCase("bucket that moves", "drop_bucket_moves", pkt.TCP(tenant4, tenantVIP4, pkt.ACK), nil), func(e *model.MuxEndpoint) {
			if n := len(e.Backends); n > 0 {
				last := e.Backends[n-1]
				last.Slot++
				e.Backends, e.Previous = append(e.Backends, last), slices.Repeat([]model.Slot{last.Slot}, len(e.Buckets))
			}
		}),
		altered(networkCase("host without a key", "drop_no_host_key", syn, nil), func(e *model.MuxEndpoint) {
			for i := range e.Backends {
				e.Backends[i].Host = 4
			}
		}),
	}
}

// pingCases are pings to a VIP of a network.
func pingCases() []packetCase {
	ping, ping6 := pkt.ICMP("192.168.0.5", "10.99.0.1"), pkt.ICMP("fd12::5", "fd12::99")
	answered := func(c packetCase) packetCase {
		c.change, c.check = withNetworks(func(e *model.MuxEndpoint) { e.Ping = true }), checkPong
		return c
	}
	return []packetCase{
		answered(networkCase("ping in a network", "reply_echo", ping, nil)),
		answered(networkCase("ping in a network, v6", "reply_echo", ping6, nil)),
		answered(networkCase("ping in a network, by v6", "reply_echo", ping, func(v *pkt.VXLAN) { *v = inVXLAN(ping, "fd02::1") })),
		answered(networkCase("ping in a network, v6 by v6", "reply_echo", ping6, func(v *pkt.VXLAN) { *v = inVXLAN(ping6, "fd02::1") })),
		answered(networkCase("ping in a network, from a host without an agent", "reply_echo", ping, func(v *pkt.VXLAN) {
			v.Outer.Source, v.Reserved = netip.MustParseAddr("10.2.0.2"), [4]byte{}
		})),
		networkCase("ping to a VIP that answers none", "drop_echo", ping, nil),
		networkCase("ping from a stranger", "drop_not_a_vtep", ping, func(v *pkt.VXLAN) { v.Outer.Source = netip.MustParseAddr("10.7.7.7") }),
		networkCase("ping of an address that no host has", "drop_echo", pkt.ICMP("127.0.0.1", "10.99.0.1"), nil),
	}
}

// checkPong wants the answer to a ping, from the address that all muxes have, without the route flag.
func checkPong(t *testing.T, frame, out []byte) {
	t.Helper()
	was, sent, err := pkt.DecodeVXLAN(frame)
	if err != nil {
		t.Fatal(err)
	}
	is, got, err := pkt.DecodeVXLAN(out)
	if err != nil {
		t.Fatal(err)
	}
	want := was
	want.Source, want.Destination, want.Reserved = was.Destination, was.Source, [4]byte{}
	want.Outer.Source, want.Outer.Destination = was.Outer.Destination, was.Outer.Source
	if !reflect.DeepEqual(is, want) {
		t.Errorf("the answer is in %+v, want %+v", is, want)
	}
	if got.Source != sent.Destination || got.Destination != sent.Source || got.IP.Source != sent.IP.Destination ||
		got.IP.Destination != sent.IP.Source || !bytes.Equal(got.Payload, sent.Payload) {
		t.Errorf("the answer to %+v is %+v", sent, got)
	}
	if kind := out[len(out)-len(got.Payload)-8]; kind != 0 && kind != 129 {
		t.Errorf("the answer is ICMP of type %d", kind)
	}
}

// checkBypass wants the packet in VXLAN again, with an FBT of host 1's key, and nothing else changed.
func checkBypass(t *testing.T, frame, out []byte) {
	t.Helper()
	was, sent, err := pkt.DecodeVXLAN(frame)
	if err != nil {
		t.Fatal(err)
	}
	is, got, err := pkt.DecodeVXLAN(out)
	if err != nil {
		t.Fatal(err)
	}
	if is.Reserved != ([4]byte{}) || is.VNI != was.VNI || is.Outer.TOS != was.Outer.TOS || is.Source != testHop.Source {
		t.Errorf("sent in %+v", is)
	}
	if len(got.Options) == 0 || got.Options[0].OptionType != fbt.Kind {
		t.Fatalf("options %v: the first is no FBT", got.Options)
	}
	option, _ := fbt.Find(out[len(out)-len(got.Payload)-20-optionsLength(got) : len(out)-len(got.Payload)])
	_, keys := oracleKeys()
	content, err := fbt.Check(keys[1], fbt.Segment{
		Outer: is.Outer.Destination, Seq: got.Seq,
		Client: netip.AddrPortFrom(got.IP.Source, got.SourcePort), VIP: netip.AddrPortFrom(got.IP.Destination, got.DestinationPort),
	}, option)
	want := fbt.Content{VNI: 100, Number: 7}
	if was.Reserved[3] == 0 {
		want = fbt.Content{VNI: 100, Number: 8, Via: true}
	}
	if err != nil || content != want {
		t.Errorf("FBT says %+v (%v), want %+v", content, err, want)
	}
	got.Options = got.Options[1:]
	if inner := got.Frame(); !bytes.Equal(inner, sent.Frame()) {
		t.Errorf("inside is\n%x, was\n%x", inner, sent.Frame())
	}
}

// optionsLength is that of p's options in a segment, with their padding.
func optionsLength(p pkt.Packet) (n int) {
	for _, o := range p.Options {
		n += int(o.OptionLength)
	}
	return (n + 3) &^ 3
}

// Tables hold exactly what they are set to, also of a process that did not fill them.
func TestNetworksAreSetExactly(t *testing.T) {
	d := newUnattached(t, testSizes)
	setNetworks(t, d)
	again := overlay.New(&d.mu, &d.tables, d.full)
	if err := again.Adopt(); err != nil {
		t.Fatal(err)
	}
	one := map[uint32]overlay.Attachment{9: {VNI: 1, VIP: netip.MustParseAddr("10.0.0.1"), Service: netip.MustParseAddr("203.0.113.1")}}
	makes, keys := oracleKeys()
	delete(keys, 2)
	for _, err := range []error{
		again.SetAttachments(one), again.SetVTEPs(oracleHosts[:1]), again.SetHostKeys(makes, keys),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if vips, vteps := rowsOf(t, d.tables.NetworkVIPs), rowsOf(t, d.tables.VTEPs); vips != 1 || vteps != len(oracleHosts[0].Addresses)*len(oracleVNIs) {
		t.Errorf("%d VIPs, %d VTEPs", vips, vteps)
	}
	third := overlay.New(&d.mu, &d.tables, d.full)
	if err := third.Adopt(); err != nil {
		t.Fatal(err)
	}
	if got := third.HostsWithKeys(); !slices.Equal(got, []uint32{1, 3}) {
		t.Errorf("hosts %v have keys, want 1 and 3", got)
	}
	if got, err := third.Attachments(); err != nil || !maps.Equal(got, one) {
		t.Errorf("attachments are %v, %v, want %v", got, err, one)
	}
	if v4, v6, err := third.OverlayAddresses(); err != nil || v4 != overlay4 || v6 != overlay6 {
		t.Errorf("addresses are %s and %s, %v", v4, v6, err)
	}
}

// The counter of an attachment begins at 0, whoever had its number before, and goes on while it keeps that.
func TestCountersOfAttachmentsBeginAnew(t *testing.T) {
	d := newUnattached(t, testSizes)
	attachment := overlay.Attachment{VNI: 1, VIP: netip.MustParseAddr("10.0.0.1"), Service: netip.MustParseAddr("203.0.113.1")}
	set := func(attachments map[uint32]overlay.Attachment) {
		t.Helper()
		if err := d.SetAttachments(attachments); err != nil {
			t.Fatal(err)
		}
	}
	count := func() uint64 {
		t.Helper()
		c, err := d.AttachmentCounter(3)
		if err != nil {
			t.Fatal(err)
		}
		return c.Packets
	}
	set(map[uint32]overlay.Attachment{3: attachment})
	each := make([]bpf.MuxCounter, ebpf.MustPossibleCPU())
	for i := range each {
		each[i].Packets = 5
	}
	if err := d.tables.NetworkCounts.Put(uint32(3), each); err != nil {
		t.Fatal(err)
	}
	attachment.Service = netip.MustParseAddr("203.0.113.2")
	if set(map[uint32]overlay.Attachment{3: attachment}); count() != uint64(5*len(each)) {
		t.Errorf("the counter of what stayed is %d", count())
	}
	set(nil)
	if set(map[uint32]overlay.Attachment{3: attachment}); count() != 0 {
		t.Errorf("the counter of what is new is %d", count())
	}
}

func TestNetworksRefuse(t *testing.T) {
	d := newUnattached(t, testSizes)
	vip, service := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("203.0.113.1")
	valid := overlay.Attachment{VNI: 1, VIP: vip, Service: service}
	for name, attachments := range map[string]map[uint32]overlay.Attachment{
		"number 0":       {0: valid},
		"number beyond":  {1 << 20: valid},
		"no VNI":         {1: {VIP: vip, Service: service}},
		"VNI beyond":     {1: {VNI: 1 << 24, VIP: vip, Service: service}},
		"two families":   {1: {VNI: 1, VIP: vip, Service: netip.MustParseAddr("2001:db8::1")}},
		"address twice":  {1: valid, 2: valid},
		"without an own": {1: {VNI: 1, VIP: vip}},
	} {
		if err := d.SetAttachments(attachments); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if err := d.SetVTEPs([]overlay.Host{{Addresses: []netip.Addr{vip}}}); err == nil {
		t.Error("a host without a number is accepted")
	}
	if err := d.SetVTEPs([]overlay.Host{{Number: 1, Addresses: []netip.Addr{vip}}, {Number: 2, Addresses: []netip.Addr{vip}}}); err == nil {
		t.Error("an address of two hosts is accepted")
	}
	if err := d.SetHostKeys(1, map[uint32][]fbt.Key{1 << 20: nil}); err == nil {
		t.Error("keys of a host beyond the table are accepted")
	}
	if err := d.SetOverlayAddresses(netip.MustParseAddr("fd00::1"), netip.Addr{}); err == nil {
		t.Error("an address of the other family is accepted")
	}
}

func rowsOf(t *testing.T, table *ebpf.Map) (n int) {
	t.Helper()
	entries := table.Iterate()
	key, value := make([]byte, table.KeySize()), make([]byte, table.ValueSize())
	for entries.Next(&key, &value) {
		n++
	}
	if err := entries.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}
