package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
)

var leavingAddress = netip.MustParseAddr("203.0.113.20")

// leavingVIP is a VIP with few ports, as which workloads leave.
func leavingVIP(listed []bool, preallocate, most uint32, reserved, endpoint uint16) model.VIP {
	s := model.SNAT{
		Preallocate: preallocate, MaxPorts: most, RequestRate: 10, Reserved: []model.PortRange{{First: 1, Last: reserved}},
	}.WithDefaults()
	for i, is := range listed {
		if is {
			s.Workloads = append(s.Workloads, model.SNATWorkload{Address: netip.AddrFrom4([4]byte{10, 3, 1, byte(i)}), Host: fmt.Sprint("host", i%2)})
		}
	}
	vip := model.VIP{Name: "crawler", Address: leavingAddress, SNAT: &s}
	if endpoint != 0 {
		vip.Endpoints = []model.Endpoint{{Protocol: model.TCP, Port: endpoint}}
	}
	return vip
}

// holdsTogether says what of a State is not as it must be.
func holdsTogether(s State) error {
	owners, digest, ranges := map[model.Range]model.SNATKey{}, uint64(0), 0
	for key, h := range s.Ports.All() {
		for r := range h.allRanges() {
			if other, twice := owners[r]; twice {
				return fmt.Errorf("range %d is of %s and of %s", r, other, key)
			}
			owners[r] = key
		}
		if !slices.IsSorted(h.Ranges) || !slices.IsSorted(h.Reclaim) {
			return fmt.Errorf("%s has %v, of which %v is reclaimed: not in order", key, h.Ranges, h.Reclaim)
		}
		for _, r := range h.Reclaim {
			if !slices.Contains(h.Ranges, r) {
				return fmt.Errorf("%d of %s is reclaimed, and not held", r, key)
			}
		}
		if _, w, there := s.SNATClientWithVIP(key); there {
			digest ^= snat.Digest(key.VIP, w.TunnelAddress(), h.Ranges...)
			ranges += len(h.Ranges)
		}
	}
	for r := range model.Range(snat.Ranges) {
		if _, taken := owners[r]; taken != s.Taken(leavingAddress).Has(r) {
			return fmt.Errorf("range %d is taken: %v, by the bitmap: %v", r, taken, !taken)
		}
	}
	if got, n := s.SNATDigest(); got != digest || n != ranges {
		return fmt.Errorf("the digest is %x of %d, must be %x of %d", got, n, digest, ranges)
	}
	if s.DoublyAllocated(leavingAddress).Len() != 0 {
		return fmt.Errorf("%d ranges are noted as of two", s.DoublyAllocated(leavingAddress).Len())
	}
	return nil
}

// Whatever is asked, given back, listed and limited: a range is in one hand, what is blocked is given to nobody,
// each has what is preallocated if there is so much, and bitmap and digest say what there is.
func TestPortsHoldTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		now := time.Unix(1000, 0)
		listed := []bool{true, true, true, true}
		write := func() {
			vip := leavingVIP(listed, 8*rapid.Uint32Range(0, 3).Draw(t, "preallocate"), 8*rapid.Uint32Range(3, 40).Draw(t, "most"),
				rapid.SampledFrom([]uint16{64999, 65199}).Draw(t, "reserved"), rapid.SampledFrom([]uint16{0, 65100, 65300}).Draw(t, "endpoint"))
			if _, err := s.Admit([]model.VIP{vip}); err != nil {
				for _, e := range model.FieldErrors(err) {
					if e.Field == "vips[0].endpoints[0].port" {
						return
					}
				}
			}
			s.PutVIP(vip)
			for key, h := range s.ChangedPorts(leavingAddress, now) {
				s.PutPorts(key, h)
			}
		}
		write()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
			i := rapid.IntRange(0, len(listed)-1).Draw(t, "workload")
			key := model.SNATKey{VIP: leavingAddress, Address: netip.AddrFrom4([4]byte{10, 3, 1, byte(i)})}
			s = s.Clone()
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				listed[i] = !listed[i] || !slices.Contains(append(slices.Clone(listed[:i]), listed[i+1:]...), true)
				write()
			case 1:
				allocateSome(t, &s, key)
			case 2:
				releaseSome(t, &s, key, now)
			case 3:
				if h, some := s.Ports.At(key).EndQuarantine(func(r Quarantined) bool { return !r.Since.After(now.Add(-QuarantineTime)) }); some {
					s.PutPorts(key, h)
				}
			case 4:
				for key, h := range s.ChangedPorts(leavingAddress, now) {
					s.PutPorts(key, h)
				}
			}
			if err := holdsTogether(s); err != nil {
				t.Fatal(err)
			}
		}
		if again := s.ChangedPorts(leavingAddress, now); len(again) > 0 {
			for key, h := range again {
				s.PutPorts(key, h)
			}
			if third := s.ChangedPorts(leavingAddress, now); len(third) > 0 {
				t.Fatalf("what was computed is computed otherwise again: %v", third)
			}
		}
	})
}

// allocateSome gives ports out, if the workload leaves as a VIP, and holds that they are free and its own.
func allocateSome(t *rapid.T, s *State, key model.SNATKey) {
	vip, _, there := s.SNATClientWithVIP(key)
	if !there {
		return
	}
	before := s.Taken(leavingAddress).Clone()
	own := s.Ports.At(key)
	h, given := s.Allocate(key, rapid.IntRange(1, 10).Draw(t, "n"), model.Range(rapid.IntRange(0, 8191).Draw(t, "start")))
	for _, r := range given {
		if snat.Blocked(vip).Has(r) || before.Has(r) && !slices.Contains(slices.Collect(own.allRanges()), r) {
			t.Fatalf("gave %d, which is blocked or somebody else's", r)
		}
	}
	s.PutPorts(key, h)
}

// releaseSome gives half of what a workload has back, and holds that nobody else may have it.
func releaseSome(t *rapid.T, s *State, key model.SNATKey, now time.Time) {
	released := s.Ports.At(key).Ranges
	released = slices.Clone(released[:len(released)/2])
	s.PutPorts(key, s.Release(key, released, now))
	for _, r := range released {
		if !s.Taken(leavingAddress).Has(r) {
			t.Fatalf("range %d is free as soon as %s gives it back", r, key)
		}
	}
}

// A range that two workloads have, which must not be, is left to the one that was given it first.
func TestDisputedRangesAreTheFirsts(t *testing.T) {
	var s State
	s.PutVIP(leavingVIP([]bool{true, true}, 0, 64, 64999, 0))
	first := model.SNATKey{VIP: leavingAddress, Address: netip.MustParseAddr("10.3.1.0")}
	second := model.SNATKey{VIP: leavingAddress, Address: netip.MustParseAddr("10.3.1.1")}
	s.PutPorts(first, PortAllocation{Host: "host0", Ranges: []model.Range{8130, 8131}})
	s.PutPorts(second, PortAllocation{Host: "host1", Ranges: []model.Range{8131, 8132}})
	written := map[model.SNATKey]uint64{first: 9, second: 7}
	wrong := s.ResolveDoubleAllocations(leavingAddress, func(key model.SNATKey) uint64 { return written[key] })
	if len(wrong) != 1 || !slices.Equal(wrong[first].Ranges, []model.Range{8130}) {
		t.Errorf("to be mended are %v", wrong)
	}
	for key, h := range wrong {
		s.PutPorts(key, h)
	}
	if err := holdsTogether(s); err != nil {
		t.Error(err)
	}
}
