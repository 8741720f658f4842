package forwarding

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/datapath/mux/nat"
	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/datapath/overlay/quota"
	"github.com/weirlb/weir/internal/datapath/overlay/reset"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/wire"
)

// fakeNAT holds tables of full NAT without a kernel.
type fakeNAT struct {
	notes    *journal
	prefixes [2]netip.Prefix
	backends map[nat.Slot]nat.Backend
	hosts    []nat.Host
	tenants  map[uint32][3]uint32 // own, most, half-open
}

func (n *fakeNAT) SetNATPrefixes(v4, v6 netip.Prefix) error {
	n.prefixes = [2]netip.Prefix{v4, v6}
	return nil
}

func (n *fakeNAT) SetNATBackends(all map[nat.Slot]nat.Backend) error {
	var text []string
	for slot, b := range all {
		text = append(text, fmt.Sprintf("%d: %s", slot.Slot, b.Address))
	}
	slices.Sort(text)
	n.notes.note("nat backends %v", text)
	n.backends = all
	return nil
}

func (n *fakeNAT) SetNATHosts(hosts []nat.Host) error {
	n.hosts = hosts
	return nil
}

func (n *fakeNAT) SetNATTenant(number, own, most, halfOpen uint32) error {
	if n.tenants == nil {
		n.tenants = map[uint32][3]uint32{}
	}
	n.tenants[number] = [3]uint32{own, most, halfOpen}
	return nil
}

func (n *fakeNAT) NATUsage(number uint32) (quota.Usage, error) {
	return quota.Usage{Rows: int(number), Most: n.tenants[number][1], Refused: 9}, nil
}

func (n *fakeNAT) MaxNATSessions() int { return 1024 }

func (n *fakeNAT) SweepNAT(uint32, func(reset.Pair) error) (nat.Swept, error) {
	return nat.Swept{}, nil
}

// natBench is a State with a NAT prefix of IPv4.
func natBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	config := b.state.config
	config.NATPrefixes = []netip.Prefix{netip.MustParsePrefix("10.66.0.0/24")}
	var err error
	if b.state, err = New(config); err != nil {
		t.Fatal(err)
	}
	b.state.Start(func([]netip.Addr) {})
	b.take()
	return b
}

// full is attachment(n) with full NAT in the mux, of a tenant's network.
func full(n byte, tenant string) vnet.Attachment {
	a := attachment(n)
	a.FullNAT, a.NAT, a.Tenant = true, true, tenant
	return a
}

// natEndpoint has a backend at each address.
func natEndpoint(n byte, backends ...string) model.MuxEndpoint {
	e := newEndpoint(key(n), backends...)
	e.NAT = true
	for i, at := range backends {
		e.Backends[i].Backend = netip.AddrPortFrom(addr(at), 80)
	}
	return e
}

func client(number uint32) vnet.MuxHost {
	return vnet.MuxHost{Number: number, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 2, 0, byte(number)})}, VNIs: []uint32{100}}
}

// Backends are there before endpoints use them, and go after that; hosts and tenants come before attachments.
func TestFullNATIsProgrammedAroundEndpoints(t *testing.T) {
	b := natBench(t)
	b.state.SetNextHops(resolved("10.0.0.1"))
	b.take()
	if err := b.apply(withNetworks(snapshot(5, natEndpoint(10, "10.0.0.1"), newEndpoint(key(11), "10.0.0.1")), wire.MuxNetworks{
		Attachments: []vnet.Attachment{full(10, "acme"), attachment(11)}, Hosts: []vnet.MuxHost{server(1), client(2)},
	})); err != nil {
		t.Fatal(err)
	}
	did, last := b.take(), 0
	for _, step := range []string{"nat backends [1: 10.0.0.1:80]", "replace by 2", "attachments [1: 10.99.0.1"} {
		at := strings.Index(did, step)
		if at < last {
			t.Errorf("%q is not there, or too early:\n%s", step, did)
		}
		last = at
	}
	if !b.rows()[10].NAT || b.rows()[11].NAT || b.rows()[10].Tenant != 1 {
		t.Errorf("attachments %+v", b.datapath.attachments)
	}
	if want := []nat.Host{{Number: 2, V4: addr("10.2.0.2")}}; !slices.Equal(b.datapath.hosts, want) {
		t.Errorf("hosts %v, want %v", b.datapath.hosts, want)
	}
	if got := b.datapath.tenants; got[0][0] != 512 || got[1] != [3]uint32{512, 1024, 256} {
		t.Errorf("tenants %v", got)
	}
	if err := b.apply(withNetworks(wire.MuxUpdate{Generation: 6, Endpoints: []model.MuxEndpoint{natEndpoint(10, "10.0.0.2")}}, wire.MuxNetworks{
		Attachments: []vnet.Attachment{full(12, "bolt")},
	})); err != nil {
		t.Fatal(err)
	}
	if got := b.datapath.tenants; got[1] != [3]uint32{256, 512, 128} || got[2] != got[1] {
		t.Errorf("tenants %v", got)
	}
	rows, err := b.state.NATSessions()
	if err != nil || len(rows) != 2 || rows[1].GetTenant() != "bolt" || rows[1].GetUsed() != 2 || rows[1].GetLimit() != 512 {
		t.Errorf("sessions %v, %v", rows, err)
	}
	// It has full NAT no more: its sessions still need their clients' hosts.
	if err := b.apply(withNetworks(wire.MuxUpdate{Generation: 7, Endpoints: []model.MuxEndpoint{newEndpoint(key(10), "10.0.0.2")}}, wire.MuxNetworks{
		Attachments: []vnet.Attachment{attachment(10), attachment(12)},
	})); err != nil {
		t.Fatal(err)
	}
	if len(b.datapath.hosts) != 1 || len(b.datapath.backends) != 0 || b.rows()[10].NAT {
		t.Errorf("hosts %v, backends %v, attachments %v", b.datapath.hosts, b.datapath.backends, b.datapath.attachments)
	}
}

// rows are attachments by the last byte of their address.
func (b *bench) rows() map[byte]overlay.Attachment {
	rows := map[byte]overlay.Attachment{}
	for _, a := range b.datapath.attachments {
		rows[a.VIP.As4()[3]] = a
	}
	return rows
}

// A mux without a prefix leaves full NAT to the servers' hosts, and says so.
func TestFullNATWithoutAPrefix(t *testing.T) {
	b := newBench(t)
	if err := b.apply(withNetworks(snapshot(5, natEndpoint(10, "10.0.0.1")), wire.MuxNetworks{
		Attachments: []vnet.Attachment{full(10, "acme")}, Hosts: []vnet.MuxHost{client(2)},
	})); err != nil {
		t.Fatal(err)
	}
	if row := b.rows()[10]; row.NAT || !row.FullNAT || len(b.datapath.hosts)+len(b.datapath.backends)+len(b.datapath.tenants) > 0 {
		t.Errorf("attachment %+v, hosts %v", row, b.datapath.hosts)
	}
	if got := b.state.Warnings(); !slices.ContainsFunc(got, func(line string) bool {
		return strings.HasPrefix(line, "1 VIPs in networks ask for full NAT in the mux")
	}) {
		t.Errorf("warnings %q", got)
	}
}

// A mux that starts anew leaves tenants their numbers, which sessions of the process before count by.
func TestFullNATIsAdopted(t *testing.T) {
	b := natBench(t)
	b.datapath.attachments = map[uint32]overlay.Attachment{7: {VNI: 100, VIP: addr("10.99.0.10"), Service: addr("203.0.113.10"), FullNAT: true, NAT: true, Tenant: 5}}
	again, err := New(b.state.config)
	if err != nil {
		t.Fatal(err)
	}
	b.state = again
	b.state.Start(func([]netip.Addr) {})
	if err := b.apply(withNetworks(snapshot(8, natEndpoint(10, "10.0.0.1")), wire.MuxNetworks{
		Attachments: []vnet.Attachment{full(9, "able"), full(10, "bolt")},
	})); err != nil {
		t.Fatal(err)
	}
	if b.rows()[10].Tenant != 5 || b.rows()[9].Tenant != 1 {
		t.Errorf("attachments %+v", b.datapath.attachments)
	}
}
