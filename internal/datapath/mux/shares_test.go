package mux

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overload"
	"github.com/weirlb/weir/internal/pkt"
)

func vipOf(key string) netip.Addr { return netip.MustParseAddrPort(key).Addr() }

func setShares(t *testing.T, d *Datapath, cuts map[netip.Addr]overload.Cut) {
	t.Helper()
	if err := d.SetShares(cuts); err != nil {
		t.Fatal(err)
	}
}

// cut has VIPs lose what is said.
func cut(cuts map[string]overload.Cut) func(*testing.T, *Datapath) {
	return func(t *testing.T, d *Datapath) {
		t.Helper()
		all := map[netip.Addr]overload.Cut{}
		for key, c := range cuts {
			all[vipOf(key)] = c
		}
		setShares(t, d, all)
	}
}

func shareCases() []packetCase {
	syn4, syn6 := pkt.TCP(client4, vip4, pkt.SYN), pkt.TCP(client6, vip6, pkt.SYN)
	all := overload.Cut{Others: 1}
	spared := func(prefix string) overload.Cut {
		return overload.Cut{Others: 1, Sources: map[netip.Prefix]float64{netip.MustParsePrefix(prefix): 0}}
	}
	caught := func(prefix string) overload.Cut {
		return overload.Cut{Sources: map[netip.Prefix]float64{netip.MustParsePrefix(prefix): 1}}
	}
	return []packetCase{
		{name: "more than its share", packet: syn4, change: cut(map[string]overload.Cut{vip4: all}), verdict: "drop_fair_share"},
		{name: "more than its share, v6", packet: syn6, change: cut(map[string]overload.Cut{vip6: all}), verdict: "drop_fair_share"},
		{name: "more than its share, UDP", packet: pkt.UDP(client4, vip4), change: cut(map[string]overload.Cut{vip4: all}), verdict: "drop_fair_share"},
		{name: "more than its share, a fragment", packet: pkt.UDP(client4, vip4, pkt.Fragment(0, true)), change: cut(map[string]overload.Cut{vip4: all}), verdict: "drop_fair_share"},
		{name: "another VIP's share", packet: syn6, change: cut(map[string]overload.Cut{vip4: all}), verdict: "forward_syn", tunnel: tunnel6},
		{name: "looked at only", packet: syn4, change: cut(map[string]overload.Cut{vip4: {}}), verdict: "forward_syn", tunnel: tunnel4},
		{name: "from a prefix with less than its share", packet: syn4, change: cut(map[string]overload.Cut{vip4: spared("198.51.100.0/24")}), verdict: "forward_syn", tunnel: tunnel4},
		{name: "from another prefix", packet: syn4, change: cut(map[string]overload.Cut{vip4: spared("198.51.101.0/24")}), verdict: "drop_fair_share"},
		{name: "from a prefix with more than its share", packet: syn4, change: cut(map[string]overload.Cut{vip4: caught("198.51.100.0/24")}), verdict: "drop_fair_share"},
		{name: "from a prefix with more than its share, v6", packet: syn6, change: cut(map[string]overload.Cut{vip6: caught("2001:db8::/56")}), verdict: "drop_fair_share"},
		{name: "beside a prefix with more than its share, v6", packet: syn6, change: cut(map[string]overload.Cut{vip6: caught("2001:db8:0:100::/56")}), verdict: "forward_syn", tunnel: tunnel6},
		{name: "the overload is over", packet: syn4, change: func(t *testing.T, d *Datapath) {
			cut(map[string]overload.Cut{vip4: all})(t, d)
			cut(nil)(t, d)
		}, verdict: "forward_syn", tunnel: tunnel4},
		{name: "nobody renews the share", packet: syn4, change: func(t *testing.T, d *Datapath) {
			cut(map[string]overload.Cut{vip4: all})(t, d)
			atomic.StoreUint64(&d.endpoints.Policers.Rows[d.endpoints.Rows.Live[vipOf(vip4)].Row.Vip].Until, 1)
		}, verdict: "forward_syn", tunnel: tunnel4},
		{name: "the endpoint changes meanwhile", packet: syn4, change: func(t *testing.T, d *Datapath) {
			cut(map[string]overload.Cut{vip4: all})(t, d)
			apply(t, d, newEndpoint(vip4, model.TCP, tunnel4, "10.0.0.2"))
		}, verdict: "drop_fair_share"},
		{name: "more than its share, within its limit", packet: syn4, change: func(t *testing.T, d *Datapath) {
			limitWorld(t, d, limitPackets, 1)
			cut(map[string]overload.Cut{vip4: all})(t, d)
		}, verdict: "drop_fair_share"},
		{name: "within its share, above its limit", packet: syn4, change: func(t *testing.T, d *Datapath) {
			spent(limitPackets, syn4.Frame())(t, d)
			cut(map[string]overload.Cut{vip4: {}})(t, d)
		}, verdict: "drop_limit_packets"},
	}
}

// A part of the packets is dropped by chance, and counted for the VIP; nobody else's are.
func TestShareIsAPart(t *testing.T) {
	d := newFilled(t, world()...)
	setShares(t, d, map[netip.Addr]overload.Cut{vipOf(vip4): {Others: 0.25}})
	const n = 8000
	frame := pkt.TCP(client4, vip4, pkt.SYN).Frame()
	for range n {
		run(t, d, frame)
		run(t, d, pkt.TCP(client6, vip6, pkt.SYN).Frame())
	}
	got := verdicts(t, d)
	if part := float64(got["drop_fair_share"]) / n; math.Abs(part-0.25) > 0.04 { // eight standard deviations
		t.Errorf("%.3f of the packets are dropped, want 0.25", part)
	}
	if got["forward_syn"] != 2*n-got["drop_fair_share"] {
		t.Errorf("verdicts are %v", got)
	}
	offered, _, err := d.OfferedLoad()
	if err != nil {
		t.Fatal(err)
	}
	o := offered[vipOf(vip4)]
	if o.All.Packets != n || o.Done.Packets != n-got["drop_fair_share"] || o.All.Bytes != n*uint64(len(frame)) {
		t.Errorf("offered: %+v", o)
	}
	refused, err := d.RefusedCounters()
	if err != nil || len(refused) != 1 || refused[vipOf(vip4)].Packets != got["drop_fair_share"] {
		t.Errorf("refused: %v, %v", refused, err)
	}
}

// Tenants have workloads, each counts once.
func TestOfferedKnowsWorkloads(t *testing.T) {
	d := newUnattached(t, testSizes)
	endpoints := []model.MuxEndpoint{
		newEndpoint("203.0.113.10:80", model.TCP, "10.0.0.1", "10.0.0.2"),
		newEndpoint("203.0.113.10:443", model.TCP, "10.0.0.2", "10.0.0.3"),
		newEndpoint("203.0.113.11:80", model.TCP, "10.0.0.1", "10.0.0.4"),
		newEndpoint("203.0.113.12:80", model.TCP, "10.0.0.1"),
	}
	for i, tenant := range []string{"acme", "acme", "acme", "other"} {
		endpoints[i].Tenant = tenant
	}
	fillWith(t, d, endpoints...)
	check := func(acme int, want ...string) {
		t.Helper()
		vips, tenants, err := d.OfferedLoad()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, vip := range []string{"203.0.113.10", "203.0.113.11", "203.0.113.12"} {
			o := vips[netip.MustParseAddr(vip)]
			got = append(got, fmt.Sprintf("%s %d", o.Tenant, o.Workloads))
		}
		if !slices.Equal(got, want) || tenants["acme"] != acme || tenants["other"] != 1 {
			t.Errorf("vips %v, tenants %v", got, tenants)
		}
	}
	check(4, "acme 3", "acme 2", "other 1")
	changed := newEndpoint("203.0.113.11:80", model.TCP, "10.0.0.1")
	changed.Tenant = "acme"
	apply(t, d, changed)
	check(3, "acme 3", "acme 1", "other 1")
	endpoints[0].Backends[0].Down = true
	apply(t, d, endpoints[0])
	check(3, "acme 3", "acme 1", "other 1")
	for _, i := range []int{0, 1} { // a backend that was taken away keeps its slot for a while
		endpoints[i].Backends[1].Down, endpoints[i].Backends[1].Retired = true, true
	}
	endpoints[1].Backends[0].Down, endpoints[1].Backends[0].Retired = true, true
	endpoints[1].Buckets = nil
	apply(t, d, endpoints[0])
	apply(t, d, endpoints[1])
	check(1, "acme 1", "acme 1", "other 1")
	endpoints[0].Backends[1].Retired = false
	apply(t, d, endpoints[0])
	check(2, "acme 2", "acme 1", "other 1")
}

// Sources are told of VIPs that are looked at: about as many as came, the largest first, and none that is not.
func TestSourcesAreFound(t *testing.T) {
	d := newFilled(t, world()...)
	setShares(t, d, map[netip.Addr]overload.Cut{vipOf(vip4): {}, vipOf(vip6): {}})
	send := func(n int, client, vip string) {
		frame := pkt.UDP(client, vip).Frame()
		for range n {
			run(t, d, frame)
		}
	}
	send(8000, "198.51.100.7:40000", vip4)
	send(4000, "192.0.2.9:40000", vip4)
	send(2000, "[2001:db8::7]:40000", vip6) // both of a prefix
	send(2000, "[2001:db8:0:ff::7]:40000", vip6)
	for i := range 2000 { // of nobody in particular
		run(t, d, pkt.UDP(fmt.Sprintf("10.%d.%d.1:1000", i/250, i%250), vip4).Frame())
	}
	found, err := d.Sources()
	if err != nil {
		t.Fatal(err)
	}
	check := func(vip string, want ...overload.Source) {
		t.Helper()
		got := found[vipOf(vip)]
		if len(got) != len(want) {
			t.Fatalf("%s: found %v", vip, got)
		}
		for i, w := range want { // one in 16 is sampled: ten standard deviations
			if got[i].Prefix != w.Prefix || math.Abs(got[i].Packets-w.Packets) > 10*4*math.Sqrt(w.Packets) {
				t.Errorf("%s: found %v, want %v", vip, got[i], w)
			}
		}
	}
	check(vip4, overload.Source{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Packets: 8000},
		overload.Source{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Packets: 4000})
	check(vip6, overload.Source{Prefix: netip.MustParsePrefix("2001:db8::/56"), Packets: 4000})
	if again, err := d.Sources(); err != nil || len(again) != 0 {
		t.Errorf("found again: %v, %v", again, err)
	}
	setShares(t, d, nil)
	send(500, "198.51.100.7:40000", vip4)
	setShares(t, d, map[netip.Addr]overload.Cut{vipOf(vip4): {}})
	if none, err := d.Sources(); err != nil || len(none) != 0 {
		t.Errorf("found while nobody looked: %v, %v", none, err)
	}
}

// The table of sources is as long as it is, and empty when the overload is over.
func TestSourceSharesAreBounded(t *testing.T) {
	d := newFilled(t, world()...)
	many := overload.Cut{Others: 0.1, Sources: map[netip.Prefix]float64{}}
	for i := range 300 {
		many.Sources[netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)] = 0.5
	}
	rows := func() (n int) {
		var key bpf.MuxShareKey
		var drop uint64
		for entries := d.tables.SourceShares.Iterate(); entries.Next(&key, &drop); {
			n++
		}
		return n
	}
	setShares(t, d, map[netip.Addr]overload.Cut{vipOf(vip4): many})
	if n := rows(); n != 256 {
		t.Errorf("%d rows", n)
	}
	setShares(t, d, map[netip.Addr]overload.Cut{vipOf(vip6): {Others: 0.1}})
	if n := rows(); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// A process that ends during an overload leaves nothing behind for the next.
func TestSharesEndWithTheirProcess(t *testing.T) {
	p := newPlace(t)
	d := p.mustOpen(t)
	defer func() { _ = d.Close() }()
	fillWith(t, d, world()...)
	setShares(t, d, map[netip.Addr]overload.Cut{vipOf(vip4): {Others: 1, Sources: map[netip.Prefix]float64{netip.MustParsePrefix("198.51.100.0/24"): 1}}})
	frame := pkt.TCP(client4, vip4, pkt.SYN).Frame()
	if run(t, d, frame); verdicts(t, d)["drop_fair_share"] != 1 {
		t.Fatalf("verdicts are %v", verdicts(t, d))
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = p.mustOpen(t)
	before := verdicts(t, d)["drop_fair_share"]
	if run(t, d, frame); verdicts(t, d)["drop_fair_share"] != before {
		t.Error("the next process goes on dropping")
	}
	if again := d.endpoints.Live[newEndpoint(vip4, model.TCP).Key].Row.Flags; again&bpf.MuxEndpointFlagENDPOINT_FAIR_SHARE != 0 {
		t.Errorf("flags are %x", again)
	}
}
