package model

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// anyPrefix is one of few prefixes that lie in each other, of either family.
func anyPrefix(r *rand.Rand) netip.Prefix {
	if r.IntN(2) == 0 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(64)), byte(r.IntN(256))}), 16+r.IntN(17)).Masked()
	}
	a := [16]byte{0x20, 1, 0xd, 0xb8, 0, byte(r.IntN(64)), byte(r.IntN(256))}
	return netip.PrefixFrom(netip.AddrFrom16(a), 32+r.IntN(25)).Masked()
}

// TestPrefixSetIsASet changes sets by chance, and holds them against maps.
func TestPrefixSetIsASet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var set PrefixSet
	want := map[netip.Prefix]bool{}
	for round := range 60 {
		var add, remove []netip.Prefix
		for range r.IntN(3000) {
			add = append(add, anyPrefix(r))
		}
		for range r.IntN(2500) {
			remove = append(remove, anyPrefix(r))
		}
		before, was := set, slices.Collect(set.All())
		for _, p := range remove {
			delete(want, p)
		}
		for _, p := range add {
			want[p] = true
		}
		set = set.Change(add, remove)
		if !slices.Equal(slices.Collect(before.All()), was) {
			t.Fatalf("round %d: the set before changed", round)
		}
		got := slices.Collect(set.All())
		if len(got) != len(want) || set.Len() != len(want) || set.Count(IPv4)+set.Count(IPv6) != len(want) {
			t.Fatalf("round %d: %d prefixes, counted as %d, want %d", round, len(got), set.Len(), len(want))
		}
		for i, p := range got {
			if !want[p] || !set.Has(p) || i > 0 && got[i-1].Compare(p) >= 0 {
				t.Fatalf("round %d: prefix %d is %s: not one, or not in order", round, i, p)
			}
		}
		holdChunks(t, set)
		holdLookups(t, r, set, got)
		if n, m := set.Beyond(before), before.Beyond(set); n < len(set.Minus(before)) || m < len(before.Minus(set)) || set.Beyond(set) != 0 {
			t.Fatalf("round %d: %d and %d prefixes are said to differ at most", round, n, m)
		}
		if added := set.Minus(before); len(added)-len(before.Minus(set)) != len(got)-len(was) || slices.ContainsFunc(added, before.Has) {
			t.Fatalf("round %d: the difference to the set before is wrong", round)
		}
		if whole := NewPrefixSet(got); len(whole.Minus(set))+len(set.Minus(whole)) > 0 || !before.Replace(whole).Change(nil, nil).hasAll(got) {
			t.Fatalf("round %d: the same prefixes are another set", round)
		}
	}
}

func (s PrefixSet) hasAll(list []netip.Prefix) bool {
	return slices.Equal(slices.Collect(s.All()), list)
}

// holdChunks holds that chunks are read as they were written, and neither empty nor too large.
func holdChunks(t *testing.T, set PrefixSet) {
	t.Helper()
	var read []*PrefixChunk
	for _, c := range set.Chunks() {
		back, err := ParsePrefixChunk(c.Packed())
		if err != nil || back.ID() != c.ID() || c.Len() == 0 || c.Len() > chunkMost {
			t.Fatalf("a chunk of %d prefixes is read as %v, %v", c.Len(), back, err)
		}
		read = append(read, back)
	}
	if back, err := PrefixSetOf(read); err != nil || !back.Equal(set) || back.Len() != set.Len() {
		t.Fatalf("a set is read as another one: %v", err)
	}
}

// holdLookups holds what is found against a walk.
func holdLookups(t *testing.T, r *rand.Rand, set PrefixSet, all []netip.Prefix) {
	t.Helper()
	for range 20 {
		p := anyPrefix(r)
		var around netip.Prefix
		var within []netip.Prefix
		for _, q := range all {
			if q.Bits() <= p.Bits() && q.Contains(p.Addr()) && (!around.IsValid() || q.Bits() > around.Bits()) {
				around = q
			}
			if q.Bits() >= p.Bits() && p.Contains(q.Addr()) {
				within = append(within, q)
			}
		}
		if got, found := set.Covering(p); got != around || found != around.IsValid() {
			t.Fatalf("%s is in %s, want %s", p, got, around)
		}
		if got := slices.Collect(set.Within(p)); !slices.Equal(got, within) {
			t.Fatalf("in %s there are %v, want %v", p, got, within)
		}
	}
}

// TestASmallChangeTouchesFewChunks of a large set.
func TestASmallChangeTouchesFewChunks(t *testing.T) {
	var all []netip.Prefix
	for i := range 100_000 {
		all = append(all, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(i >> 16), byte(i >> 8), byte(i), 1}), 32))
	}
	set := NewPrefixSet(all)
	one := netip.MustParsePrefix("0.1.2.3/32")
	next := set.Change([]netip.Prefix{one}, all[70_000:70_001])
	if n := len(apart(next, set)); n > 2 {
		t.Errorf("%d of %d chunks are new", n, len(next.Chunks()))
	}
	if n := len(apart(set.Replace(NewPrefixSet(slices.Collect(next.All()))), next)); n > 0 {
		t.Errorf("%d chunks of the same change by the whole list are others", n)
	}
	if back := next.Change(all[70_000:70_001], []netip.Prefix{one}); !back.Equal(set) {
		t.Error("the change taken back leads elsewhere")
	}
}

func TestParsePrefixChunkRefuses(t *testing.T) {
	for what, packed := range map[string]string{
		"nothing":            "",
		"no family":          "\x05\x0a\x00\x00\x00\x08",
		"no prefixes":        "\x04",
		"half a prefix":      "\x04\x0a\x00\x00",
		"too long":           "\x04\x0a\x00\x00\x00\x21",
		"bits behind it":     "\x04\x0a\x01\x00\x00\x08",
		"twice":              "\x04\x0a\x00\x00\x00\x08\x0a\x00\x00\x00\x08",
		"in the wrong order": "\x04\x0b\x00\x00\x00\x08\x0a\x00\x00\x00\x08",
	} {
		if _, err := ParsePrefixChunk([]byte(packed)); err == nil {
			t.Errorf("%s was read", what)
		}
	}
}
