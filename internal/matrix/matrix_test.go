package matrix

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// A client is in the longest prefix that has it; whatever order they come in, the version is the same, and of others another.
func TestRacks(t *testing.T) {
	r := NewRacks(prefixes("10.1.0.0/16", "10.1.2.3/24", "fd00:1::/48", "10.1.2.0/24"))
	for client, want := range map[string]string{
		"10.1.2.9": "10.1.2.0/24", "10.1.9.9": "10.1.0.0/16", "10.2.0.1": "", "fd00:1::9": "fd00:1::/48", "fd00:2::9": "", "0.0.0.0": "",
	} {
		got := r.Of(netip.MustParseAddr(client))
		if text := got.String(); got.IsValid() && text != want || !got.IsValid() && want != "" {
			t.Errorf("%s is in %v, want %q", client, got, want)
		}
	}
	again := NewRacks(prefixes("fd00:1::/48", "10.1.2.0/24", "10.1.0.0/16"))
	if again.Version() != r.Version() || r.Version() == 0 || !slices.Equal(again.Prefixes(), r.Prefixes()) || len(r.Prefixes()) != 3 {
		t.Errorf("%v and %v", r.Prefixes(), again.Prefixes())
	}
	if NewRacks(prefixes("10.1.0.0/16")).Version() == r.Version() || NewRacks(nil).Version() != 0 {
		t.Error("the versions of others are the same")
	}
	var many []netip.Prefix
	for i := range MaxPrefixes + 5 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 14), byte(i >> 6), byte(i << 2)}), 30))
	}
	if n := len(NewRacks(many).Prefixes()); n != MaxPrefixes {
		t.Errorf("%d prefixes are kept", n)
	}
}

func vipOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}) }

// Nothing is counted twice and, but for VIPs that have no room at all, nothing is lost: a report has the largest rows as they
// are, and the rest of each VIP as from outside.
func TestRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		racks := NewRacks(prefixes("10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24"))
		c, sums := Count{}, map[netip.Addr]uint64{}
		for range rapid.IntRange(0, 60).Draw(t, "packets") {
			vip := vipOf(rapid.IntRange(0, 7).Draw(t, "vip"))
			bytes := uint64(rapid.IntRange(1, 1500).Draw(t, "bytes"))
			c.Add(racks, vip, netip.AddrFrom4([4]byte{10, 0, byte(rapid.IntRange(0, 4).Draw(t, "rack")), 9}), bytes)
			sums[vip] += bytes
		}
		most := rapid.IntRange(16, 40).Draw(t, "most")
		rows := c.Rows(most)
		if len(rows) > most || !slices.IsSortedFunc(rows, func(a, b Row) int { return a.Compare(b.Key) }) {
			t.Fatalf("%d rows, at most %d: %v", len(rows), most, rows)
		}
		for _, r := range rows {
			if sums[r.VIP] -= r.Bytes; r.From.IsValid() && c[r.Key] != r.Bytes {
				t.Fatalf("%v was counted %d times", r, c[r.Key])
			}
		}
		for vip, left := range sums { // 8 VIPs have room beside the half that is for the largest
			if left != 0 {
				t.Fatalf("of %s %d bytes are left out", vip, left)
			}
		}
	})
}

// However many VIPs and racks there are, what an agent and a manager count is bounded.
func TestBounds(t *testing.T) {
	racks := NewRacks(prefixes("10.0.0.0/24"))
	c := Count{}
	for i := range 3 * maxKeys {
		c.Add(racks, vipOf(i), netip.MustParseAddr("10.0.0.1"), 1)
	}
	if len(c) > 2*maxKeys {
		t.Errorf("%d keys", len(c))
	}
	if n := len(c.Rows(MaxRows)); n > MaxRows {
		t.Errorf("%d rows", n)
	}
}

// What was added between two readings is told, also when a manager or an agent began anew.
func TestSince(t *testing.T) {
	totals := NewTotals()
	key := func(vip int, from string) Key {
		k := Key{VIP: vipOf(vip)}
		if from != "" {
			k.From = netip.MustParsePrefix(from)
		}
		return k
	}
	totals.Add([]Row{{key(1, ""), 10}, {key(1, "10.0.0.0/24"), 20}, {key(2, ""), 5}})
	before := totals.Rows()
	totals.Add([]Row{{key(1, "10.0.0.0/24"), 7}, {key(3, "10.0.0.0/24"), 1}})
	want := []Row{{key(1, "10.0.0.0/24"), 7}, {key(3, "10.0.0.0/24"), 1}}
	if got := Since(before, totals.Rows()); !slices.Equal(got, want) {
		t.Errorf("added %v, want %v", got, want)
	}
	totals.Keep(func(vip netip.Addr) bool { return vip == vipOf(1) })
	if rows := totals.Rows(); len(rows) != 2 || totals.keys != 2 {
		t.Errorf("kept %v", rows)
	}
	totals.Keep(func(netip.Addr) bool { return false })
	totals.Add([]Row{{key(1, ""), 3}})
	if got := Since(before, totals.Rows()); len(got) != 1 || got[0].Bytes != 3 {
		t.Errorf("anew: %v", got)
	}
}
