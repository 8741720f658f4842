package snatport

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

// holdsTogether says what of the allocations is not as it must be.
func holdsTogether(a Allocations) error {
	owners, digest, ranges := map[model.Range]model.SNATKey{}, uint64(0), 0
	for key, h := range a.All() {
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
		if w, there := a.Client(key); there {
			digest ^= snat.Digest(key.VIP, w.TunnelAddress(), h.Ranges...)
			ranges += len(h.Ranges)
		}
	}
	for r := range model.Range(snat.Ranges) {
		if _, taken := owners[r]; taken != a.Taken(leavingAddress).Has(r) {
			return fmt.Errorf("range %d is taken: %v, by the bitmap: %v", r, taken, !taken)
		}
	}
	if got, n := a.Digest(); got != digest || n != ranges {
		return fmt.Errorf("the digest is %x of %d, must be %x of %d", got, n, digest, ranges)
	}
	if a.DoublyAllocated(leavingAddress).Len() != 0 {
		return fmt.Errorf("%d ranges are noted as of two", a.DoublyAllocated(leavingAddress).Len())
	}
	return nil
}

// Whatever is asked, given back, listed and limited: a range is in one hand, what is blocked is given to nobody,
// each has what is preallocated if there is so much, and bitmap and digest say what there is.
func TestPortsHoldTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a Allocations
		var vip model.VIP
		now := time.Unix(1000, 0)
		listed := []bool{true, true, true, true}
		withBlocks := true
		hasBlocks := func(host string) bool { return withBlocks || host == "host0" }
		write := func() {
			next := leavingVIP(listed, 8*rapid.Uint32Range(0, 3).Draw(t, "preallocate"), 8*rapid.Uint32Range(3, 40).Draw(t, "most"),
				rapid.SampledFrom([]uint16{64999, 65199}).Draw(t, "reserved"), rapid.SampledFrom([]uint16{0, 65100, 65300}).Draw(t, "endpoint"))
			if len(next.Endpoints) > 0 && a.Taken(leavingAddress).Has(model.RangeOf(next.Endpoints[0].Port)) {
				return // admission refuses it
			}
			a.ReplaceVIP(vip, next)
			vip = next
			changeAll(&a, vip, now, hasBlocks)
		}
		write()
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
			i := rapid.IntRange(0, len(listed)-1).Draw(t, "workload")
			key := model.SNATKey{VIP: leavingAddress, Address: netip.AddrFrom4([4]byte{10, 3, 1, byte(i)})}
			if rapid.Bool().Draw(t, "of a block") {
				key = model.BlockKey(leavingAddress, fmt.Sprint("host", i%2))
			}
			a = a.Clone()
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 5:
				withBlocks = !withBlocks
			case 0:
				listed[i] = !listed[i] || !slices.Contains(append(slices.Clone(listed[:i]), listed[i+1:]...), true)
				write()
			case 1:
				allocateSome(t, &a, vip, key)
			case 2:
				releaseSome(t, &a, key, now)
			case 3:
				if h, some := a.At(key).EndQuarantine(func(r Quarantined) bool { return !r.Since.After(now.Add(-QuarantineTime)) }); some {
					a.Set(key, h)
				}
			case 4:
				changeAll(&a, vip, now, hasBlocks)
			}
			if err := holdsTogether(a); err != nil {
				t.Fatal(err)
			}
		}
		changeAll(&a, vip, now, hasBlocks)
		if err := withinLimits(a, vip, hasBlocks); err != nil {
			t.Fatal(err)
		}
		if changeAll(&a, vip, now, hasBlocks) > 0 {
			if n := changeAll(&a, vip, now, hasBlocks); n > 0 {
				t.Fatalf("what was computed is computed otherwise again, %d times", n)
			}
		}
	})
}

// changeAll takes over what is to be changed, and says how much that was.
func changeAll(a *Allocations, vip model.VIP, now time.Time, hasBlocks func(string) bool) int {
	changed := a.Changed(leavingAddress, vip, now, false, hasBlocks)
	for key, h := range changed {
		a.Set(key, h)
	}
	return len(changed)
}

// withinLimits says whether a host has more for its workloads than these may have, or has a block without knowing what
// that is.
func withinLimits(a Allocations, vip model.VIP, hasBlocks func(string) bool) error {
	sums, most := map[string]int{}, map[string]int{}
	for key, h := range a.All() {
		w, listed := a.Client(key)
		switch {
		case !listed && len(h.Ranges) > 0, key.IsBlock() && !hasBlocks(h.Host) && len(h.Ranges) > 0:
			return fmt.Errorf("%s has %v", key, h.Ranges)
		case listed && key.IsBlock():
			sums[w.Host] += h.Active()
		case listed:
			sums[w.Host] += min(len(h.Ranges), int(vip.SNAT.MaxPorts)/model.RangePorts)
			most[w.Host] += int(vip.SNAT.MaxPorts) / model.RangePorts
		}
	}
	for host, n := range sums {
		if n > most[host] {
			return fmt.Errorf("%s has %d ranges, of the %d that its workloads may", host, n, most[host])
		}
	}
	return nil
}

// allocateSome gives ports out, if the workload leaves as a VIP, and holds that they are free and its own.
func allocateSome(t *rapid.T, a *Allocations, vip model.VIP, key model.SNATKey) {
	if _, there := a.Client(key); !there {
		return
	}
	before := a.Taken(leavingAddress).Clone()
	own := a.At(key)
	h, given := a.Allocate(vip, key, rapid.IntRange(1, 10).Draw(t, "n"), model.Range(rapid.IntRange(0, 8191).Draw(t, "start")))
	for _, r := range given {
		if snat.Blocked(vip).Has(r) || before.Has(r) && key.IsBlock() || before.Has(r) && !slices.Contains(slices.Collect(own.allRanges()), r) {
			t.Fatalf("gave %d, which is blocked or somebody else's", r)
		}
	}
	a.Set(key, h)
}

// releaseSome gives half of what a workload has back, and holds that nobody else may have it.
func releaseSome(t *rapid.T, a *Allocations, key model.SNATKey, now time.Time) {
	released := a.At(key).Ranges
	released = slices.Clone(released[:len(released)/2])
	a.Set(key, a.At(key).Release(released, now))
	for _, r := range released {
		if !a.Taken(leavingAddress).Has(r) {
			t.Fatalf("range %d is free as soon as %s gives it back", r, key)
		}
	}
}

// A range that two workloads have, which must not be, is left to the one that was given it first.
func TestDisputedRangesAreTheFirsts(t *testing.T) {
	var a Allocations
	a.ReplaceVIP(model.VIP{}, leavingVIP([]bool{true, true}, 0, 64, 64999, 0))
	first := model.SNATKey{VIP: leavingAddress, Address: netip.MustParseAddr("10.3.1.0")}
	second := model.SNATKey{VIP: leavingAddress, Address: netip.MustParseAddr("10.3.1.1")}
	a.Set(first, Allocation{Host: "host0", Ranges: []model.Range{8130, 8131}})
	a.Set(second, Allocation{Host: "host1", Ranges: []model.Range{8131, 8132}})
	written := map[model.SNATKey]uint64{first: 9, second: 7}
	wrong := a.ResolveDoubles(leavingAddress, func(key model.SNATKey) uint64 { return written[key] })
	if len(wrong) != 1 || !slices.Equal(wrong[first].Ranges, []model.Range{8130}) {
		t.Errorf("to be mended are %v", wrong)
	}
	for key, h := range wrong {
		a.Set(key, h)
	}
	if err := holdsTogether(a); err != nil {
		t.Error(err)
	}
}
