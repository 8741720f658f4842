package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// quotaRig has room for few sessions, and rules of three VIPs.
func quotaRig(t *testing.T) *rig {
	return newRig(t, func(spec *ebpf.CollectionSpec) {
		spec.Maps["sessions"].MaxEntries = 1 << 11
		spec.Maps["new_sessions"].MaxEntries = 1 << 11
	})
}

// families are a VIP that floods and one that does not, a client of each, and their backend.
var families = map[string]struct{ greedy, other, client, dip string }{
	"v4": {vip4, otherVIP4, "198.51.100.7", native4},
	"v6": {vip6, "[2001:db8:1::11]:80", "2001:db8::7", native6},
}

// TestQuotasSpareOtherVIPs floods one VIP with connections whose clients answer, and so with confirmed sessions. Those
// of another VIP, idle meanwhile, go on where the workload speaks first; new ones begin; and the VIP that is flooded
// goes on too.
func TestQuotasSpareOtherVIPs(t *testing.T) {
	for name, f := range families {
		t.Run(name, func(t *testing.T) {
			r := quotaRig(t)
			if name == "v6" {
				all := r.backends()
				all = append(all, rule(model.TCP, f.other, native4, native4, native6))
				if err := r.Replace(all); err != nil {
					t.Fatal(err)
				}
			}
			address := func(i int) string {
				return netip.AddrPortFrom(netip.MustParseAddr(f.client), uint16(1024+i)).String()
			}
			reply := func(i int, vip string, flags pkt.Flags) []byte {
				return replyTo(delivered(pkt.TCP(address(i), vip, flags), f.dip), flags).Frame()
			}
			open := func(i int, vip string) {
				in := pkt.TCP(address(i), vip, pkt.SYN)
				r.quick("from_uplink", in.Inside(outer(native4)).Frame())
				r.quick("to_uplink", reply(i, vip, pkt.SYN|pkt.ACK))
				r.quick("from_uplink", in.With(func(p *pkt.Packet) { p.Flags = pkt.ACK }).Inside(outer(native4)).Frame())
			}
			says := func(i int, vip string) string {
				return r.run("to_uplink", reply(i, vip, pkt.ACK|pkt.PSH), nil).verdict
			}
			const idle, flood = 60, 12_000
			for i := range idle {
				open(i, f.other)
			}
			for i := range flood {
				open(1000+i, f.greedy)
				if i%4000 == 3999 {
					r.sweep()
				}
			}
			for i := range idle {
				if got := says(i, f.other); got != "reply_native" {
					t.Fatalf("what the workload sends in connection %d of the other VIP is %s", i, got)
				}
			}
			open(50_000, f.other)
			open(50_001, f.greedy)
			for i, vip := range map[int]string{50_000: f.other, 50_001: f.greedy} {
				if got := says(i, vip); got != "reply_native" {
					t.Errorf("what the workload sends in a new connection of %s is %s", vip, got)
				}
			}
			for _, v := range r.sweep().VIPs {
				greedy := netip.MustParseAddrPort(f.greedy).Addr() == v.VIP
				if v.Refused != greedy || v.Confirmed > v.Limit {
					t.Errorf("counted are %+v", v)
				}
			}
		})
	}
}

// backends are the rules as they are.
func (r *rig) backends() (all []model.HostBackend) {
	for _, b := range r.All() {
		all = append(all, b)
	}
	return all
}

func (r *rig) sweep() session.Report {
	r.t.Helper()
	sessionReport, err := r.Sweep(session.Now(), session.DefaultTimeouts())
	if err != nil {
		r.t.Fatal(err)
	}
	return sessionReport
}

// prove opens so many connections whose clients answer, beginning with the first-th client.
func (r *rig) prove(vip string, first, n int) {
	r.t.Helper()
	for i := first; i < first+n; i++ {
		packet := func(flags pkt.Flags) pkt.Packet {
			return pkt.TCP(fmt.Sprintf("198.51.100.%d:%d", 1+i%200, 1024+i/200), vip, flags)
		}
		r.quick("from_uplink", packet(pkt.SYN).Inside(outer(native4)).Frame())
		r.quick("to_uplink", replyTo(delivered(packet(pkt.SYN), native4), pkt.SYN|pkt.ACK).Frame())
		r.quick("from_uplink", packet(pkt.ACK).Inside(outer(native4)).Frame())
	}
}

// confirmed sweeps, and tells how many confirmed sessions each VIP has.
func (r *rig) confirmed() map[string]int {
	r.t.Helper()
	all := make(map[string]int)
	for _, v := range r.sweep().VIPs {
		all[v.VIP.String()] = v.Confirmed
	}
	return all
}

// TestIdleSharesAreLentAndGivenBack has one VIP of three take what the others own and do not use, but for what they
// need to begin with; and give it back when another wants as much.
func TestIdleSharesAreLentAndGivenBack(t *testing.T) {
	r := quotaRig(t)
	room := r.TableRows(session.ConfirmedTable)
	for i := range 2 {
		r.prove(vip4, i*3000, 3000)
		r.confirmed()
	}
	first, second := ipOf(vip4), ipOf(otherVIP4)
	alone := r.confirmed()[first]
	if least := room/2 + room/6 + room/12; alone < least { // common, its own, and some of that of the others
		t.Errorf("a VIP beside idle ones has %d of %d sessions, want at least %d", alone, room, least)
	}
	// What the other keeps it has at once, with no sweep between.
	const some = 40
	r.prove(otherVIP4, 10_000, some)
	for range 4 {
		r.prove(otherVIP4, 10_000, 4000)
		r.confirmed()
	}
	r.confirmed()
	now := r.confirmed()
	if now[first] >= alone*3/4 || now[second] < now[first]*9/10 {
		t.Errorf("a VIP that had %d sessions has %d beside one that wants as many and has %d", alone, now[first], now[second])
	}
	if sum := now[first] + now[second]; sum > room {
		t.Errorf("both have %d, there is room for %d", sum, room)
	}
}

// TestBorrowedSessionsEndAtASweep has a VIP hold more than it may once another wants its own: the sweep ends the rest,
// the longest idle first.
func TestBorrowedSessionsEndAtASweep(t *testing.T) {
	r := quotaRig(t)
	r.prove(vip4, 0, 1200)
	before := r.confirmed()[ipOf(vip4)]
	// As if the other had been refused that many; and the first half of ours had been idle for longest.
	idle := make(map[bpf.AgentSessionKey]bool)
	rows, err := abi.ReadTable[bpf.AgentSessionKey, bpf.AgentSession](r.objects.Sessions)
	if err != nil {
		t.Fatal(err)
	}
	for key, row := range rows {
		if len(idle) == before/2 {
			break
		}
		idle[key] = true
		row.LastSeen -= uint64(time.Minute)
		if err := r.objects.Sessions.Put(key, row); err != nil {
			t.Fatal(err)
		}
	}
	l, err := r.NewLedger()
	if err != nil {
		t.Fatal(err)
	}
	l.Held[netip.MustParseAddrPort(vip4).Addr()].Used[session.ConfirmedTable] = before
	l.Held[netip.MustParseAddrPort(otherVIP4).Addr()].Waiting[session.ConfirmedTable] = 4000
	counted, _, err := r.ApplyQuotas(l)
	if err != nil {
		t.Fatal(err)
	}
	limit := 0
	for _, v := range counted {
		if v.VIP == netip.MustParseAddrPort(vip4).Addr() {
			limit = v.Limit
		}
	}
	if limit >= before || limit == 0 {
		t.Fatalf("limit is %d beside one that wants all, had %d", limit, before)
	}
	rows, err = abi.ReadTable[bpf.AgentSessionKey, bpf.AgentSession](r.objects.Sessions)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != limit {
		t.Errorf("%d sessions are left, may have %d", len(rows), limit)
	}
	stayed := 0
	for key := range rows {
		if idle[key] {
			stayed++
		}
	}
	if ended := before - limit; stayed != max(len(idle)-ended, 0) {
		t.Errorf("%d ended, and %d stayed of %d that had been idle for longest", ended, stayed, len(idle))
	}
}

// TestTenantsShareSessions has a tenant of many VIPs and one of a single one want all there is, with the same workload
// each: both get the same.
func TestTenantsShareSessions(t *testing.T) {
	r := quotaRig(t)
	var rules []model.HostBackend
	var many []string
	for i := range 8 {
		vip := fmt.Sprintf("203.0.113.%d:80", 20+i)
		many = append(many, vip)
		rules = append(rules, rule(model.TCP, vip, native4, native4, native6))
		rules[i].Tenant = "many"
	}
	one := rule(model.TCP, vip4, native4, native4, native6)
	one.Tenant = "one"
	if err := r.Replace(append(rules, one)); err != nil {
		t.Fatal(err)
	}
	const want = 1500
	sum := func(now map[string]int) (all int) {
		for _, vip := range many {
			all += now[ipOf(vip)]
		}
		return all
	}
	var now map[string]int
	for range 5 {
		for i, vip := range many {
			r.prove(vip, 20_000+i*want/8, want/8)
		}
		r.confirmed()
		r.prove(vip4, 0, want)
		now = r.confirmed()
	}
	theirs, ours := sum(now), now[ipOf(vip4)]
	told := make(map[string]session.TenantSessions)
	for _, tenant := range r.sweep().Tenants {
		told[tenant.Tenant] = tenant
	}
	if told["many"].Confirmed != theirs || told["one"].Confirmed != ours || len(told) != 2 || told["many"].Limit < theirs || told["one"].Limit < ours {
		t.Errorf("a tenant has %d sessions, another %d; told are %v", theirs, ours, told)
	}
	if ours*10 < theirs*9 || theirs*10 < ours*9 {
		t.Errorf("a tenant has %d sessions with 8 VIPs, another %d with one", theirs, ours)
	}
}

func ipOf(addrPort string) string { return netip.MustParseAddrPort(addrPort).Addr().String() }

// A VIP that is gone leaves no rows, and one that comes has some at once.
func TestQuotasFollowRules(t *testing.T) {
	r := newRig(t)
	vips := func() map[netip.Addr]bool {
		rows, err := abi.ReadTable[bpf.AgentAddress, bpf.AgentSessionQuota](r.objects.SessionQuotas)
		if err != nil {
			t.Fatal(err)
		}
		all := map[netip.Addr]bool{}
		for vip := range rows {
			all[bpf.FromAddress(vip)] = true
		}
		return all
	}
	want := map[netip.Addr]bool{session.Borrowed: true}
	for key := range r.All() {
		want[key.Endpoint.VIP] = true
	}
	if got := vips(); !maps.Equal(got, want) || len(want) < 4 {
		t.Errorf("quotas are of %v, want %v", got, want)
	}
	if err := r.Replace(nil); err != nil {
		t.Fatal(err)
	}
	if got := vips(); len(got) != 1 || !got[session.Borrowed] {
		t.Errorf("quotas without rules are of %v", got)
	}
}
