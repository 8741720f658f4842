package mux

import (
	"context"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/datapath/mux/trace"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/look"
	"github.com/weirlb/weir/internal/pkt"
	snatdigest "github.com/weirlb/weir/internal/snat"
)

// ranges gives a workload the ranges, behind the tunnel.
func ranges(vip, workload, tunnel string, numbers ...model.Range) model.MuxSNAT {
	return model.MuxSNAT{
		Key:    model.SNATKey{VIP: netip.MustParseAddr(vip), Address: netip.MustParseAddr(workload)},
		Tunnel: netip.MustParseAddr(tunnel), Ranges: numbers, Ping: true,
	}
}

func update(t testing.TB, d *Datapath, u endpoint.Update) {
	t.Helper()
	if err := d.Update(u); err != nil {
		t.Fatal(err)
	}
}

// leaving lets workloads leave as VIPs: port 5000 is in range 625.
func leaving(t *testing.T, d *Datapath) {
	update(t, d, endpoint.Update{SNAT: []model.MuxSNAT{
		ranges("203.0.113.10", "10.1.0.2", tunnel4, 625, 700),
		ranges("203.0.113.10", "10.1.0.3", tunnel6, 626),
		ranges("2001:db8:1::10", "fd00::2", tunnel6, 625),
		ranges("2001:db8:1::10", "fd00::3", tunnel4, 626),
	}})
	resolve(t, d)
}

func snatCases() []packetCase {
	answer4 := pkt.TCP("198.51.100.7:443", "203.0.113.10:5000", pkt.SYN|pkt.ACK)
	big := pkt.Payload(make([]byte, testMTU-40))
	ping := pkt.ICMP("198.51.100.7", "203.0.113.10")
	reply := func(identifier uint16) func([]byte) []byte {
		return func(frame []byte) []byte {
			frame[ping.L4()] = 0 // an answer
			binary.BigEndian.PutUint16(frame[ping.L4()+4:], identifier)
			return frame
		}
	}
	quoting := func(vip, client string, n int) func([]byte) []byte {
		return func([]byte) []byte { return icmpError(vip, client, n) }
	}
	sent := func(*testing.T, []byte, []byte) {}
	cases := []packetCase{
		{name: "4 in 4", packet: answer4, verdict: "forward_snat", tunnel: tunnel4},
		{name: "4 in 6", packet: pkt.UDP("198.51.100.7:9000", "203.0.113.10:5015"), verdict: "forward_snat", tunnel: tunnel6},
		{name: "6 in 6", packet: pkt.TCP("[2001:db8::7]:443", "[2001:db8:1::10]:5007", pkt.ACK), verdict: "forward_snat", tunnel: tunnel6},
		{name: "6 in 4", packet: pkt.UDP("[2001:db8::7]:9000", "[2001:db8:1::10]:5008"), verdict: "forward_snat", tunnel: tunnel4},
		{name: "another range of a workload", packet: pkt.TCP(client4, "203.0.113.10:5600", pkt.ACK), verdict: "forward_snat", tunnel: tunnel4},
		{name: "an endpoint's port", packet: pkt.TCP(client4, vip4, pkt.SYN), verdict: "forward_syn", tunnel: tunnel4},
		{name: "nobody's port", packet: pkt.TCP(client4, "203.0.113.10:6000", pkt.ACK), verdict: "drop_no_range"},
		{name: "nobody's port, v6", packet: pkt.UDP(client6, "[2001:db8:1::10]:4999"), verdict: "drop_no_range"},
		{name: "answer to a ping", packet: ping, damage: reply(5001), verdict: "forward_snat", check: sent},
		{name: "answer to nobody's ping", packet: ping, damage: reply(4999), verdict: "drop_no_range"},
		{name: "error about a workload's packet", packet: answer4, damage: quoting("203.0.113.10:5000", client4, 28), verdict: "forward_icmp", check: sent},
		{name: "error about nobody's packet", packet: answer4, damage: quoting("203.0.113.10:4000", client4, 28), verdict: "drop_no_range"},
		{name: "too big for the way back", packet: answer4.With(big, dontFragment), verdict: "reply_too_big", check: sent},
		{name: "first fragment", packet: pkt.UDP("198.51.100.7:9000", "203.0.113.10:5000", pkt.Fragment(0, true)), verdict: "forward_fragment", check: sent},
	}
	for i := range cases {
		cases[i].change = leaving
	}
	return cases
}

// ownersOf is what the tables say: tunnels by VIP and range.
func ownersOf(t *testing.T, d *Datapath) map[model.SNATKey]netip.Addr {
	t.Helper()
	all := map[model.SNATKey]netip.Addr{}
	for vip := range d.endpoints.SNAT.VIPs() {
		for r, owner := range d.endpoints.SNAT.Ranges(vip) {
			if owner == 0 {
				continue
			}
			var row bpf.MuxBackend
			if err := d.tables.SNATOwners.Lookup(owner, &row); err != nil {
				t.Fatal(err)
			}
			all[rangeKey(vip, model.Range(r))] = bpf.FromAddress(row.Tunnel)
		}
	}
	return all
}

// rangeKey names a range, with its number for an address.
func rangeKey(vip netip.Addr, r model.Range) model.SNATKey {
	return model.SNATKey{VIP: vip, Address: netip.AddrFrom4([4]byte{0, 0, byte(r >> 8), byte(r)})}
}

func wanted(live map[model.SNATKey]model.MuxSNAT) map[model.SNATKey]netip.Addr {
	all := map[model.SNATKey]netip.Addr{}
	for key, s := range live {
		for _, r := range s.Ranges {
			all[rangeKey(key.VIP, r)] = s.Tunnel
		}
	}
	return all
}

// TestRangesFollowUpdates compares the tables with what a random history of updates says. Some of them can't
// be carried out, and change nothing; rows of small tables are used again and again.
func TestRangesFollowUpdates(t *testing.T) {
	d := newFilled(t, world()...)
	r := rand.New(rand.NewPCG(1, 2))
	live := map[model.SNATKey]model.MuxSNAT{}
	draw := func() model.MuxSNAT {
		s := ranges("203.0.113.10", "10.1.0.1", "10.0.0.1")
		s.Key.VIP = netip.AddrFrom4([4]byte{203, 0, 113, byte(8 + r.IntN(5))}) // one more than there is room for
		s.Key.Address = netip.AddrFrom4([4]byte{10, 1, 0, byte(r.IntN(6))})
		s.Tunnel = netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(40)), byte(r.IntN(200))})
		for n := range 64 {
			if r.IntN(8) == 0 {
				s.Ranges = append(s.Ranges, model.Range(128*n))
			}
		}
		return s
	}
	refused := 0
	for range 600 {
		u := endpoint.Update{Snapshot: r.IntN(20) == 0}
		next := maps.Clone(live)
		if u.Snapshot {
			u.Endpoints, next = world(), map[model.SNATKey]model.MuxSNAT{}
		}
		for key := range live {
			if r.IntN(3) == 0 && !u.Snapshot {
				u.SNATRemoved = append(u.SNATRemoved, key)
				delete(next, key)
			}
		}
		for range r.IntN(4) {
			s := draw()
			if !slices.ContainsFunc(u.SNAT, func(o model.MuxSNAT) bool { return o.Key == s.Key }) {
				u.SNAT = append(u.SNAT, s)
				next[s.Key] = s
			}
		}
		if err := d.Update(u); err != nil {
			refused++
			if !strings.Contains(err.Error(), "another's") && !strings.Contains(err.Error(), "--max-snat-ports") {
				t.Fatal(err)
			}
		} else {
			live = next
		}
		checkDigest(t, d, live)
		if diff := cmp.Diff(wanted(live), ownersOf(t, d), cmpopts.EquateComparable(model.SNATKey{}, netip.Addr{})); diff != "" {
			t.Fatalf("ranges (-want +got):\n%s", diff)
		}
	}
	if refused == 0 || refused > 500 {
		t.Errorf("%d of 600 updates were refused", refused)
	}
	checkNoRangesLeft(t, d)
}

func checkDigest(t *testing.T, d *Datapath, live map[model.SNATKey]model.MuxSNAT) {
	t.Helper()
	var want uint64
	count := 0
	for key, s := range live {
		count += len(s.Ranges)
		want ^= snatdigest.Digest(key.VIP, s.Tunnel, s.Ranges...)
	}
	if got, digest := d.SNATDigest(); got != count || digest != want {
		t.Fatalf("%d ranges of digest %x, want %d of %x", got, digest, count, want)
	}
}

// checkNoRangesLeft ends all source NAT: every row is free again then.
func checkNoRangesLeft(t *testing.T, d *Datapath) {
	t.Helper()
	update(t, d, endpoint.Update{Snapshot: true, Endpoints: world()})
	vips, owners := d.endpoints.SNAT.Free()
	if d.endpoints.SNAT.Len() != 0 || vips != int(testSizes.SNATVIPs) {
		t.Errorf("%d VIPs have source NAT, %d slices are free", d.endpoints.SNAT.Len(), vips)
	}
	if owners != int(testSizes.SNATOwnerRows()) {
		t.Errorf("%d rows of owners are free, want all %d", owners, testSizes.SNATOwnerRows())
	}
	if n, digest := d.SNATDigest(); n != 0 || digest != 0 {
		t.Errorf("%d ranges are counted, digest %x", n, digest)
	}
	if pool, _ := pool.ReadRow(&d.tables); pool.Flags&uint32(bpf.MuxSettingsFlagSETTINGS_SNAT) != 0 {
		t.Error("packets still look for ranges")
	}
}

// TestARangeIsNeverAMixture lets ranges go to and fro between workloads while packets come: each goes to
// the one or to the other.
func TestARangeIsNeverAMixture(t *testing.T) {
	d := newFilled(t, world()...)
	leaving(t, d)
	frame := pkt.TCP("198.51.100.7:443", "203.0.113.10:5000", pkt.ACK).Frame()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		from, to := ranges("203.0.113.10", "10.1.0.2", tunnel4, 700), ranges("203.0.113.10", "10.1.0.3", tunnel6, 625, 626)
		for ctx.Err() == nil {
			for _, u := range []endpoint.Update{
				{SNAT: []model.MuxSNAT{to, from}},
				{SNAT: []model.MuxSNAT{
					ranges("203.0.113.10", "10.1.0.2", tunnel4, 625, 700), ranges("203.0.113.10", "10.1.0.3", tunnel6, 626),
				}},
			} {
				if err := d.Update(u); err != nil {
					ended <- err
					return
				}
			}
		}
		ended <- nil
	}()
	seen := map[netip.Addr]int{}
	for range 20_000 {
		action, out := run(t, d, frame)
		if checkAction(t, action, xdpTX); t.Failed() {
			break
		}
		if out[12] == 0x08 {
			seen[netip.AddrFrom4([4]byte(out[30:]))]++
		} else {
			seen[netip.AddrFrom16([16]byte(out[38:]))]++
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	a, b := netip.MustParseAddr(tunnel4), netip.MustParseAddr(tunnel6)
	if seen[a]+seen[b] != 20_000 || seen[a] == 0 || seen[b] == 0 {
		t.Errorf("packets went to %v", seen)
	}
}

// TestRangesAreKept: what a restored store does not know stays whose it is, by the workload's name or, after a restart,
// by its tunnel alone, until a snapshot without that says what is.
func TestRangesAreKept(t *testing.T) {
	p := newPlace(t)
	p.config.MaxSNATPorts = 4 << 16
	d := p.mustOpen(t)
	first, second, lost := ranges("203.0.113.10", "10.1.0.2", tunnel4, 625), ranges("203.0.113.10", "10.1.0.3", tunnel6, 626, 627), ranges("203.0.113.20", "10.1.0.4", tunnel4, 628)
	update(t, d, endpoint.Update{Snapshot: true, Endpoints: world(), SNAT: []model.MuxSNAT{first, second, lost}})
	before := ownersOf(t, d)
	holds := func(when string, want map[model.SNATKey]netip.Addr) {
		t.Helper()
		if diff := cmp.Diff(want, ownersOf(t, d), cmpopts.EquateComparable(model.SNATKey{}, netip.Addr{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	// The backup says that the first has what the second has by now, one that is nobody's, and nothing of the third.
	old := []model.MuxSNAT{ranges("203.0.113.10", "10.1.0.2", tunnel4, 626, 629), ranges("203.0.113.10", "10.1.0.3", tunnel6, 629)}
	want := maps.Clone(before)
	want[rangeKey(first.Key.VIP, 629)] = first.Tunnel
	update(t, d, endpoint.Update{Snapshot: true, KeepSNAT: true, Endpoints: world(), SNAT: old})
	holds("after a backup's snapshot", want)
	update(t, d, endpoint.Update{KeepSNAT: true, SNATRemoved: []model.SNATKey{second.Key}})
	holds("after a removal", want)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = p.mustOpen(t)
	defer d.Close()
	update(t, d, endpoint.Update{Snapshot: true, KeepSNAT: true, Endpoints: world(), SNAT: old})
	holds("after a restart", want)
	update(t, d, endpoint.Update{Snapshot: true, Endpoints: world(), SNAT: []model.MuxSNAT{first, second}})
	holds("when it is settled", wanted(map[model.SNATKey]model.MuxSNAT{first.Key: first, second.Key: second}))
}

// TestRangesLiveThroughARestart adopts tables; the first snapshot tells who is behind the tunnels.
func TestRangesLiveThroughARestart(t *testing.T) {
	p := newPlace(t)
	p.config.MaxSNATPorts = 4 << 16
	d := p.mustOpen(t)
	if err := d.SetSettings(testSettings()); err != nil {
		t.Fatal(err)
	}
	all := []model.MuxSNAT{
		ranges("203.0.113.10", "10.1.0.2", tunnel4, 625, 700), ranges("203.0.113.20", "10.1.0.3", tunnel6, 626),
	}
	update(t, d, endpoint.Update{Snapshot: true, Endpoints: world(), SNAT: all})
	resolve(t, d)
	answer := pkt.TCP("198.51.100.7:443", "203.0.113.10:5000", pkt.ACK).Frame()
	run(t, d, answer)
	before := ownersOf(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	d = p.mustOpen(t)
	defer d.Close()
	if diff := cmp.Diff(before, ownersOf(t, d), cmpopts.EquateComparable(model.SNATKey{}, netip.Addr{})); diff != "" {
		t.Errorf("ranges (-before +after):\n%s", diff)
	}
	vips, err := d.VIPs()
	if err != nil || !slices.Contains(vips, netip.MustParseAddr("203.0.113.20")) {
		t.Errorf("VIPs are %v, error %v", vips, err)
	}
	run(t, d, answer)
	if got := endpointPackets(t, d)["203.0.113.10"]; got != 2 {
		t.Errorf("%d answers are counted, want 2", got)
	}
	// An endpoint of its own takes nothing that packets still read.
	apply(t, d, newEndpoint("203.0.113.12:80", model.TCP, tunnel4))
	if diff := cmp.Diff(before, ownersOf(t, d), cmpopts.EquateComparable(model.SNATKey{}, netip.Addr{})); diff != "" {
		t.Errorf("ranges after an update of endpoints (-before +after):\n%s", diff)
	}
	update(t, d, endpoint.Update{Snapshot: true, Endpoints: world(), SNAT: all[:1]})
	if got := ownersOf(t, d); len(got) != 2 {
		t.Errorf("after a snapshot there are %v", got)
	}
	if d.endpoints.SNAT.Owners() != 1 || d.endpoints.SNAT.Len() != 1 {
		t.Errorf("%d tunnels and %d VIPs are held, want one each", d.endpoints.SNAT.Owners(), d.endpoints.SNAT.Len())
	}
	run(t, d, answer)
	if got := endpointPackets(t, d)["203.0.113.10"]; got != 3 {
		t.Errorf("%d answers are counted, want 3", got)
	}
}

func TestExplanationNamesTheWorkload(t *testing.T) {
	d := newFilled(t, world()...)
	leaving(t, d)
	e, err := d.Explain(pkt.TCP("198.51.100.7:443", "203.0.113.10:5000", pkt.ACK).Frame())
	if err != nil {
		t.Fatal(err)
	}
	if e.Verdict != "forward_snat" || e.Layer != look.LayerSNAT || e.Workload != netip.MustParseAddr("10.1.0.2") || e.Tunnel != netip.MustParseAddr(tunnel4) {
		t.Errorf("explanation is %+v", e)
	}
	if got := trace.Comment(e); got != "source NAT range 625, workload 10.1.0.2, tunnel 10.0.0.1" {
		t.Errorf("comment is %q", got)
	}
}
