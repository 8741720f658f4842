package snat

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

func drawSet(t *rapid.T, label string) (*Set, map[model.Range]bool) {
	s, oracle := &Set{}, map[model.Range]bool{}
	for range rapid.IntRange(0, 40).Draw(t, label) {
		first := rapid.Uint16().Draw(t, "first")
		last := min(int(first)+rapid.IntRange(0, 20_000).Draw(t, "width"), 65535)
		s.AddPorts(model.PortRange{First: first, Last: uint16(last)})
		for port := int(first); port <= last; port++ {
			oracle[model.RangeOf(uint16(port))] = true
		}
	}
	for range rapid.IntRange(0, 10).Draw(t, "removed") {
		r := model.Range(rapid.IntRange(0, Ranges-1).Draw(t, "range"))
		s.Remove(r)
		delete(oracle, r)
	}
	return s, oracle
}

func TestSetIsWhatItsRangesAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, oracle := drawSet(t, "ports")
		if s.Len() != len(oracle) {
			t.Fatalf("%d ranges, not %d", s.Len(), len(oracle))
		}
		for r := range model.Range(Ranges) {
			if s.Has(r) != oracle[r] {
				t.Fatalf("range %d: %v", r, s.Has(r))
			}
		}
	})
}

// Whatever is taken, all that is free is found once, in order from the start on.
func TestFreeFindsEachFreeRangeOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		taken, isTaken := drawSet(t, "taken")
		blocked, isBlocked := drawSet(t, "blocked")
		start := model.Range(rapid.IntRange(0, Ranges-1).Draw(t, "start"))
		var want []model.Range
		for i := range Ranges {
			if r := model.Range((int(start) + i) % Ranges); !isTaken[r] && !isBlocked[r] {
				want = append(want, r)
			}
		}
		if got := slices.Collect(Free(taken, blocked, start)); !slices.Equal(got, want) {
			t.Fatalf("from %d: %d ranges, not %d", start, len(got), len(want))
		}
		if n := FreeCount(taken, blocked); n != len(want) {
			t.Fatalf("%d are free, not %d", n, len(want))
		}
	})
}

func TestBlockedAreEndpointsAndReservedPorts(t *testing.T) {
	vip := model.VIP{
		Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 8080}, {Protocol: model.UDP, Port: 53}},
		SNAT:      &model.SNAT{Reserved: []model.PortRange{{First: 1, Last: 15}, {First: 5000, Last: 5000}}},
	}
	want := []model.Range{0, 1, 53 / 8, 5000 / 8, 8080 / 8}
	var got []model.Range
	blocked := Blocked(vip)
	for r := range model.Range(Ranges) {
		if blocked.Has(r) {
			got = append(got, r)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("blocked are %v, not %v", got, want)
	}
}

// A prediction never gives more than there is or than is allowed, nor less than is needed if there is so much;
// requests that follow each other closely get more each time, and one after a pause gets one range.
func TestDemandIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Demand
		now := time.Unix(1000, 0)
		last := 0
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			pause := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, Window, time.Minute}).Draw(t, "pause")
			now = now.Add(pause)
			need := rapid.Uint32Range(0, 300).Draw(t, "need")
			free := rapid.IntRange(0, Ranges).Draw(t, "free")
			allowed := rapid.IntRange(0, Ranges).Draw(t, "allowed")
			n := d.Next(now, need, free, allowed)
			least := min(max(1, (int(need)+7)/8), MaxGrant, free, allowed)
			if n < least || n > free || n > allowed || n > MaxGrant {
				t.Fatalf("gives %d of %d free and %d allowed for %d ports", n, free, allowed, need)
			}
			if pause >= Window && n > max(1, (int(need)+7)/8) {
				t.Fatalf("gives %d for %d ports after a pause", n, need)
			}
			if plenty := free == Ranges && allowed == Ranges; plenty && pause < Window && n < min(2*last, MaxGrant) {
				t.Fatalf("gives %d after %d", n, last)
			}
			d, last = d.Allocated(now, n), n
		}
	})
}

// Connections to one destination, each with a port of its own, make at most 1 request in 25.
func TestPredictionSavesRequests(t *testing.T) {
	for _, gap := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
		var d Demand
		now, ports, requests := time.Unix(1000, 0), model.DefaultPreallocate, 0
		const connections = 1000
		for i := range connections {
			if now = now.Add(gap); i < ports {
				continue
			}
			requests++
			n := d.Next(now, 1, 5000, 5000)
			d, ports = d.Allocated(now, n), ports+n*model.RangePorts
		}
		if requests*25 > connections {
			t.Errorf("%d requests for %d connections, one each %s", requests, connections, gap)
		}
	}
}

func TestDigestTellsTablesApart(t *testing.T) {
	vip, a, b := netip.MustParseAddr("203.0.113.20"), netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("10.1.0.3")
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOfNDistinct(rapid.Uint16Range(0, Ranges-1), 2, 50, rapid.ID).Draw(t, "ranges")
		var ranges []model.Range
		for _, n := range numbers {
			ranges = append(ranges, model.Range(n))
		}
		cut := rapid.IntRange(1, len(ranges)-1).Draw(t, "cut")
		whole := Digest(vip, a, ranges...)
		if parts := Digest(vip, a, ranges[cut:]...) ^ Digest(vip, a, ranges[:cut]...); parts != whole {
			t.Fatalf("parts make %x, not %x", parts, whole)
		}
		if Digest(vip, b, ranges...) == whole || Digest(a, vip, ranges...) == whole || Digest(vip, a, ranges[1:]...) == whole {
			t.Fatal("another table has the same digest")
		}
	})
}
