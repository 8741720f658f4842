package wire

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
)

func drawVNI(t *rapid.T) uint32 { return rapid.Uint32Range(1, vnet.MaxVNI).Draw(t, "vni") }

func drawNumber(t *rapid.T) uint32 { return rapid.Uint32Range(1, vnet.MaxHosts).Draw(t, "number") }

func drawAttachment(t *rapid.T) vnet.Attachment {
	v4 := rapid.Bool().Draw(t, "v4")
	return vnet.Attachment{
		AttachmentKey: vnet.AttachmentKey{VNI: drawVNI(t), VIP: drawAddr(t, v4)}, Service: drawAddr(t, v4), Network: "prod", GatewayMAC: rapid.SampledFrom([]vnet.MAC{{}, vnet.DefaultGatewayMAC}).Draw(t, "mac"),
		WithoutAgent: rapid.Bool().Draw(t, "without agent"), FullNAT: rapid.Bool().Draw(t, "full NAT"), Relay: rapid.Bool().Draw(t, "relay"),
		NAT: rapid.Bool().Draw(t, "NAT"), Tenant: "acme",
	}
}

func TestNetworksOfMuxesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		attachment, number := drawAttachment(t), drawNumber(t)
		want := MuxNetworks{
			Addresses: []netip.Addr{drawAddr(t, true), drawAddr(t, false)}[:rapid.IntRange(1, 2).Draw(t, "addresses")],
			Masters:   []fbt.Master{{ID: 1, Secret: [32]byte{1}}, {ID: 2, Secret: [32]byte{31: 2}}},

			Attachments: []vnet.Attachment{attachment}, AttachmentsRemoved: []vnet.AttachmentKey{attachment.AttachmentKey, drawAttachment(t).AttachmentKey},
			Hosts: []vnet.MuxHost{{
				Number: number, Name: "host1", Addresses: []netip.Addr{drawAddr(t, true)}, Agent: rapid.Bool().Draw(t, "agent"),
				Server: rapid.Bool().Draw(t, "server"), VNIs: []uint32{drawVNI(t), drawVNI(t)},
			}},
			HostsRemoved: []uint32{drawNumber(t)},
		}
		got, err := muxNetworksFromProto(muxNetworksToProto(want))
		if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
			t.Fatalf("networks of a mux came back otherwise: %v\n%s", err, diff)
		}
	})
}

func TestNetworksOfHostsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		attachment, number := drawAttachment(t), drawNumber(t)
		want := HostNetworks{
			Number: number, Own: []netip.Addr{drawAddr(t, true), drawAddr(t, false)}, Addresses: []netip.Addr{drawAddr(t, false)},
			LocalPrefixes: slices.Clone(vnet.DefaultLocalPrefixes), Keys: []fbt.Key{{ID: 7, Secret: [16]byte{15: 1}}},

			Attachments: []vnet.Attachment{attachment}, AttachmentsRemoved: []vnet.AttachmentKey{attachment.AttachmentKey},
			Hosts: []vnet.NetworkHost{{
				Number: number, V4: drawAddr(t, true), V6: drawAddr(t, false), Client: rapid.Bool().Draw(t, "client"), WithoutAgent: rapid.Bool().Draw(t, "without agent"), Tunnels: []netip.Addr{drawAddr(t, true)},
			}, {Number: number%vnet.MaxHosts + 1, V6: drawAddr(t, false)}},
			HostsRemoved: []uint32{drawNumber(t)}, NetworksRemoved: []uint32{drawVNI(t)},
			Moved: []vnet.Move{{VNI: drawVNI(t), Addresses: []netip.Addr{netip.MustParseAddr("192.168.0.5")}, Host: drawNumber(t)}},
			Networks: []vnet.HostNetwork{{
				VNI: drawVNI(t), Name: "prod", Tenant: "acme", GatewayMAC: vnet.DefaultGatewayMAC,
				Ports: []vnet.Port{{Interface: "vnet3", Workload: "web-1", MAC: vnet.MAC{2, 1}, Addresses: []netip.Addr{drawAddr(t, true), drawAddr(t, false)}}},
			}},
		}
		got, err := hostNetworksFromProto(hostNetworksToProto(want))
		if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
			t.Fatalf("networks of a host came back otherwise: %v\n%s", err, diff)
		}
	})
}

// Who has no networks pays nothing for them.
func TestNoNetworksAreNoBytes(t *testing.T) {
	if n := proto.Size(MuxUpdateToProto(MuxUpdate{})); n != 0 {
		t.Errorf("an empty update of a mux has %d bytes", n)
	}
	if n := proto.Size(HostUpdateToProto(HostUpdate{})); n != 0 {
		t.Errorf("an empty update of a host has %d bytes", n)
	}
}

func TestNumbersOfHostsInEndpoints(t *testing.T) {
	endpoint := func(host uint32) *weirv1.MuxEndpoint {
		return &weirv1.MuxEndpoint{
			Endpoint: &weirv1.EndpointKey{Vip: "203.0.113.1", Protocol: "TCP", Port: 80},
			Backends: []*weirv1.MuxBackend{{Slot: 1, Tunnel: "10.0.0.1", Address: "10.0.0.1", Port: 80, Host: host}},
		}
	}
	got, err := MuxEndpointFromProto(endpoint(vnet.MaxHosts))
	if err != nil || got.Backends[0].Host != vnet.MaxHosts || MuxEndpointToProto(got).GetBackends()[0].GetHost() != vnet.MaxHosts {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := MuxEndpointFromProto(endpoint(vnet.MaxHosts + 1)); err == nil {
		t.Error("a number that no table has a row for was accepted")
	}
}

// someSecret has the length of a key's; of a master's, twice.
const someSecret = "0123456789abcdef"

// readMuxNetworks reads networks that are valid but for a change.
func readMuxNetworks(change func(*weirv1.MuxNetworks)) error {
	p := &weirv1.MuxNetworks{
		Addresses:   []string{"10.255.0.1", "fd00::1"},
		Masters:     []*weirv1.FBTMaster{{Id: 1, Secret: []byte(someSecret + someSecret)}},
		Attachments: []*weirv1.NetworkAttachment{{Key: &weirv1.AttachmentKey{Vni: 1, Vip: "10.9.0.1"}, Service: "203.0.113.1", Network: "prod"}},
		Hosts:       []*weirv1.MuxHost{{Number: 1, Name: "host1", Addresses: []string{"10.0.0.1"}, Vnis: []uint32{1}}},
	}
	change(p)
	_, err := MuxUpdateFromProto(&weirv1.SyncMuxResponse{Networks: p}, new(PrefixChunks))
	return err
}

// readHostNetworks is likewise of a host.
func readHostNetworks(change func(*weirv1.HostNetworks)) error {
	p := &weirv1.HostNetworks{
		Number: 1, Own: []string{"10.0.0.1"}, Keys: []*weirv1.FBTKey{{Id: 1, Secret: []byte(someSecret)}},
		LocalPrefixes: []string{"100.64.0.0/10"}, Hosts: []*weirv1.NetworkHost{{Number: 1, Addresses: []string{"10.0.0.1"}}},
		Networks: []*weirv1.HostNetwork{{
			Vni: 1, Name: "prod", Tenant: "acme", GatewayMac: "02:57:45:49:52:01",
			Ports: []*weirv1.NetworkPort{{Interface: "vnet3", Workload: "web-1", Mac: "02:00:00:00:02:01", Addresses: []string{"192.168.0.5"}}},
		}},
	}
	change(p)
	_, err := HostUpdateFromProto(&weirv1.SyncHostResponse{Networks: p})
	return err
}

// refusal is an error, and the fields that it is to name.
type refusal struct {
	err  error
	want []string
}

func checkRefusals(t *testing.T, all []refusal) {
	t.Helper()
	for _, c := range all {
		var got, want []string
		for _, e := range model.FieldErrors(c.err) {
			got = append(got, e.Field)
		}
		for _, field := range c.want {
			want = append(want, "networks."+field)
		}
		if !slices.Equal(got, want) {
			t.Errorf("refused %v, want %v: %v", got, want, c.err)
		}
		if c.err != nil && strings.Contains(c.err.Error(), someSecret) {
			t.Errorf("the refusal tells a secret: %v", c.err)
		}
	}
}

func TestWhatFromProtoRefusesOfNetworksOfMuxes(t *testing.T) {
	checkRefusals(t, []refusal{
		{readMuxNetworks(func(*weirv1.MuxNetworks) {}), nil},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Addresses = []string{"10.255.0.1", "10.255.0.2"} }), []string{"addresses"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Addresses = make([]string, 1000) }), []string{"addresses"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Masters[0].Id = 0 }), []string{"masters[0]"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Masters[0].Secret = []byte(someSecret) }), []string{"masters[0]"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Masters = make([]*weirv1.FBTMaster, fbt.Masters+1) }), []string{"masters"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Attachments[0].Key = nil }), []string{"attachments[0].key.vni", "attachments[0].key.vip"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Attachments[0].Key.Vni = 1 << 24 }), []string{"attachments[0].key.vni"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Attachments[0].Service = "fd00::2" }), []string{"attachments[0].service"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Attachments[0].GatewayMac = "02:57" }), []string{"attachments[0].gatewayMac"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Hosts[0].Name = "" }), nil},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Hosts[0].Name, n.Hosts[0].Server = "", true }), []string{"hosts[0].name"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Attachments[0].Network = "Prod" }), []string{"attachments[0].network"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Attachments = append(n.Attachments, n.Attachments[0]) }), []string{"attachments[1].key"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.AttachmentsRemoved = []*weirv1.AttachmentKey{nil} }), []string{"attachmentsRemoved[0].vni", "attachmentsRemoved[0].vip"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Attachments[0].Nat = true }), []string{"attachments[0].tenant"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Hosts[0].Number = 0 }), []string{"hosts[0].number"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Hosts[0].Number = vnet.MaxHosts + 1 }), []string{"hosts[0].number"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Hosts = append(n.Hosts, n.Hosts[0]) }), []string{"hosts[1].number"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Hosts[0].Addresses = nil }), []string{"hosts[0].addresses"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Hosts[0].Name = "host 1" }), []string{"hosts[0].name"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Hosts[0].Vnis = []uint32{1, 0} }), []string{"hosts[0].vnis[1]"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.Hosts[0].Vnis = make([]uint32, vnet.MaxNetworks+1) }), []string{"hosts[0].vnis"}},
		{readMuxNetworks(func(n *weirv1.MuxNetworks) { n.HostsRemoved = []uint32{0} }), []string{"hostsRemoved[0]"}},
	})
}

func TestWhatFromProtoRefusesOfNetworksOfHosts(t *testing.T) {
	checkRefusals(t, []refusal{
		{readHostNetworks(func(*weirv1.HostNetworks) {}), nil},
		{readHostNetworks(func(n *weirv1.HostNetworks) { n.Number = vnet.MaxHosts + 1 }), []string{"number"}},
		{readHostNetworks(func(n *weirv1.HostNetworks) { n.Own = []string{"10.0.0.1", "10.0.0.2"} }), []string{"own"}},
		{readHostNetworks(func(n *weirv1.HostNetworks) { n.Keys[0].Secret = []byte(someSecret + someSecret) }), []string{"keys[0]"}},
		{readHostNetworks(func(n *weirv1.HostNetworks) { n.Keys = make([]*weirv1.FBTKey, fbt.Masters+1) }), []string{"keys"}},
		{readHostNetworks(func(n *weirv1.HostNetworks) { n.LocalPrefixes = []string{"100.64.0.0/10", "10.0.0.0/8"} }), []string{"localPrefixes[1]"}},
		{readHostNetworks(func(n *weirv1.HostNetworks) { n.Hosts[0].Addresses = []string{"10.0.0.1", "10.0.0.2"} }), []string{"hosts[0].addresses"}},
		{readHostNetworks(func(n *weirv1.HostNetworks) { n.Hosts[0].Tunnels = []string{"host1"} }), []string{"hosts[0].tunnels[0]"}},
		{readHostNetworks(func(n *weirv1.HostNetworks) { n.Networks[0].Ports[0].Interface = "../vnet3" }), []string{"networks[0].ports[0].interface"}},
		{readHostNetworks(func(n *weirv1.HostNetworks) { n.Networks[0].Ports[0].Mac = "" }), []string{"networks[0].ports[0].mac"}},
		{readHostNetworks(func(n *weirv1.HostNetworks) { n.Networks[0].Ports[0].Addresses = make([]string, vnet.MaxAddresses+1) }), []string{"networks[0].ports[0].addresses"}},
		{readHostNetworks(func(n *weirv1.HostNetworks) { n.NetworksRemoved = []uint32{vnet.MaxVNI + 1} }), []string{"networksRemoved[0]"}},
	})
}
