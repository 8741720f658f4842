package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/pkt"
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

// TestQuotasSpareOtherVIPs floods one VIP with connections whose clients answer, and so with proven sessions. Those
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
				if v.Refused != greedy || v.Proven > v.Limit {
					t.Errorf("counted are %+v", v)
				}
			}
		})
	}
}

// backends are the rules as they are.
func (r *rig) backends() (all []model.HostBackend) {
	for _, b := range r.rules {
		all = append(all, b)
	}
	return all
}

func (r *rig) sweep() Census {
	r.t.Helper()
	census, err := r.Sweep(Now(), DefaultTimeouts())
	if err != nil {
		r.t.Fatal(err)
	}
	return census
}

// TestBorrowedSessionsAreGivenBack has one VIP borrow all there is, and another want as many later.
func TestBorrowedSessionsAreGivenBack(t *testing.T) {
	r := quotaRig(t)
	open := func(i int, vip string) {
		packet := func(flags pkt.Flags) pkt.Packet {
			return pkt.TCP(fmt.Sprintf("198.51.100.%d:%d", 1+i%200, 1024+i/200), vip, flags)
		}
		r.quick("from_uplink", packet(pkt.SYN).Inside(outer(native4)).Frame())
		r.quick("to_uplink", replyTo(delivered(packet(pkt.SYN), native4), pkt.SYN|pkt.ACK).Frame())
		r.quick("from_uplink", packet(pkt.ACK).Inside(outer(native4)).Frame())
	}
	proven := func(vip string) int {
		for _, v := range r.sweep().VIPs {
			if v.VIP == netip.MustParseAddrPort(vip).Addr() {
				return v.Proven
			}
		}
		return -1
	}
	for i := range 4000 {
		open(i, vip4)
	}
	alone := proven(vip4)
	for range 4 {
		for i := range 4000 {
			open(10_000+i, otherVIP4)
		}
		r.sweep()
	}
	first, second := proven(vip4), proven(otherVIP4)
	if first >= alone || second < first*9/10 {
		t.Errorf("a VIP that had %d sessions has %d beside one that wants as many and has %d", alone, first, second)
	}
}

func TestLevels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.IntRange(0, 1000).Draw(t, "room")
		wants := rapid.SliceOfN(rapid.IntRange(0, 500), 1, 20).Draw(t, "wants")
		part := level(append([]int(nil), wants...), room)
		sum, cut := 0, 0
		for _, want := range wants {
			sum += min(want, part)
			if want > part {
				cut++
			}
		}
		if sum > room {
			t.Fatalf("parts of %d add up to %d", part, sum)
		}
		if cut > 0 && room-sum >= cut {
			t.Fatalf("%d are cut to %d, and %d of the room is left", cut, part, room-sum)
		}
	})
}

// A VIP that is gone leaves no rows, and one that comes has some at once.
func TestQuotasFollowRules(t *testing.T) {
	r := newRig(t)
	vips := func() map[netip.Addr]bool {
		rows, err := readTable[agentAddress, agentSessionQuota](r.objects.SessionQuotas)
		if err != nil {
			t.Fatal(err)
		}
		all := map[netip.Addr]bool{}
		for vip := range rows {
			all[fromAddress(vip)] = true
		}
		return all
	}
	want := map[netip.Addr]bool{borrowed: true}
	for key := range r.rules {
		want[key.Endpoint.VIP] = true
	}
	if got := vips(); !maps.Equal(got, want) || len(want) < 4 {
		t.Errorf("quotas are of %v, want %v", got, want)
	}
	if err := r.Replace(nil); err != nil {
		t.Fatal(err)
	}
	if got := vips(); len(got) != 1 || !got[borrowed] {
		t.Errorf("quotas without rules are of %v", got)
	}
}
