package switchconfig

import (
	"math"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/placementpolicy"
)

func partsOf(g Group, of uint32) (parts []Group) {
	for n := range of {
		parts = append(parts, g.Part(placementpolicy.Part{Number: n + 1, Of: of}))
	}
	return parts
}

// Parts are together the group, none is empty, and all weigh the same but for slivers.
func TestPartsAreTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g Group
		for i, w := range rapid.SliceOfN(rapid.Uint64Range(1000, 3*allBuckets), 1, 60).Draw(t, "weights") {
			g = append(g, Share{tunnel(i), w})
		}
		of := rapid.Uint32Range(2, 64).Draw(t, "of")
		left := map[netip.Addr]uint64{}
		for _, s := range g {
			left[s.Tunnel] = s.Weight
		}
		exact := float64(g.weight()) / float64(of)
		for i, part := range partsOf(g, of) {
			if off := math.Abs(float64(part.weight())/exact - 1); len(part) == 0 || off > 2.1/sliver {
				t.Fatalf("part %d of %d of %v has %v, which weighs %.2f too much or less", i+1, of, g, part, off)
			}
			if !slices.IsSortedFunc(part, func(a, b Share) int { return a.Tunnel.Compare(b.Tunnel) }) {
				t.Fatalf("part %v is in no order", part)
			}
			for _, s := range part {
				left[s.Tunnel] -= s.Weight
			}
		}
		for tunnel, weight := range left {
			if weight != 0 {
				t.Fatalf("of %s %d are in no part, or in two", tunnel, weight)
			}
		}
	})
}

// A member that goes changes each part by two tunnels at most, and by as many as there are parts in all others.
func TestPartsStayAsMembersGo(t *testing.T) {
	of := uint32(4)
	var g Group
	for i := range 1200 {
		g = append(g, Share{tunnel(i), 64})
	}
	for gone := 0; gone < len(g); gone += 7 {
		less := slices.Delete(slices.Clone(g), gone, gone+1)
		before, after := partsOf(g, of), partsOf(less, of)
		for i := range before {
			changed := 0
			for _, pair := range [][2]Group{{before[i], after[i]}, {after[i], before[i]}} {
				for _, s := range pair[0] {
					if !slices.ContainsFunc(pair[1], func(other Share) bool { return other.Tunnel == s.Tunnel }) {
						changed++
					}
				}
			}
			if changed > 3 || len(after[i]) > 301 {
				t.Fatalf("without member %d part %d has %d others, and %d", gone, i+1, changed, len(after[i]))
			}
		}
	}
}

// The error of shares is that of the packets that tunnels get, of switches that get the same each.
func TestShareErrorIsThatOfPackets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g Group
		for i, w := range rapid.SliceOfN(rapid.Uint64Range(1, 40), 1, 30).Draw(t, "weights") {
			g = append(g, Share{tunnel(i), w})
		}
		of, most := rapid.Uint32Range(1, 5).Draw(t, "of"), rapid.Uint32Range(0, 64).Draw(t, "most")
		worst := 0.0
		for n := range of {
			p := placementpolicy.Part{Number: n + 1, Of: of}
			part := g.Part(p)
			members, rows := part.Members(most), uint32(0)
			for _, m := range members {
				rows += m.Entries
			}
			size, off := g.SizeOf(p, most, true), 0.0
			for i, m := range members {
				packets, asked := float64(m.Entries)/float64(rows)/float64(of), float64(part[i].Weight)/float64(g.weight())
				off = max(off, math.Abs(packets-asked)/asked)
			}
			if math.Abs(size.ShareError-off) > 1e-9 || size.Entries != rows || int(size.Members) != len(members) {
				t.Fatalf("part %v: %+v, want an error of %v in %v", p, size, off, members)
			}
			worst = max(worst, off)
		}
		if slices.Max(weights(g)) == slices.Min(weights(g)) && of == 1 && worst > 1e-9 {
			t.Fatalf("equal shares are off by %v", worst)
		}
	})
	equal := Group{{tunnel(1), allBuckets}, {tunnel(2), allBuckets}, {tunnel(3), allBuckets}}
	two := placementpolicy.Part{Number: 1, Of: 2}
	if size := equal.SizeOf(two, 0, true); size.ShareError > 1e-4 || size.Entries != 3 {
		t.Errorf("of three members in two parts: %+v", size)
	}
	if size := equal.SizeOf(two, 0, false); math.Abs(size.ShareError-0.5) > 0.01 || size.Entries != 2 {
		t.Errorf("without weights: %+v", size)
	}
}

func weights(g Group) (all []uint64) {
	for _, s := range g {
		all = append(all, s.Weight)
	}
	return all
}
