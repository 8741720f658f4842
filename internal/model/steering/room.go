package steering

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// BucketsPerRow is how many buckets a row of a host's table has. One that names no backend is left out.
const BucketsPerRow = 32

// Room is how many rows of a host's tables VIPs need, or how many these have.
type Room struct {
	Endpoints int // those of the VIPs themselves too
	Buckets   int // rows of BucketsPerRow
	Backends  int
	Sources   int // outer sources of each VIP
}

// HostRoom is what a host has, but for sources: as many again are those of all VIPs.
func HostRoom() Room {
	return Room{Endpoints: 4096, Buckets: 262144, Backends: 131072, Sources: 131072}
}

// Plus is both together.
func (r Room) Plus(o Room) Room {
	return Room{r.Endpoints + o.Endpoints, r.Buckets + o.Buckets, r.Backends + o.Backends, r.Sources + o.Sources}
}

// Minus is r without o.
func (r Room) Minus(o Room) Room {
	return Room{r.Endpoints - o.Endpoints, r.Buckets - o.Buckets, r.Backends - o.Backends, r.Sources - o.Sources}
}

// Half is half of it.
func (r Room) Half() Room { return Room{r.Endpoints / 2, r.Buckets / 2, r.Backends / 2, r.Sources / 2} }

// Lacks says what of need is more than there is room for, or nothing.
func (r Room) Lacks(need Room) error {
	for _, of := range []struct {
		need, room int
		what       string
	}{
		{need.Endpoints, r.Endpoints, "endpoints"},
		{need.Buckets, r.Buckets, "rows of buckets"},
		{need.Backends, r.Backends, "backends"},
		{need.Sources, r.Sources, "outer sources"},
	} {
		if of.need > of.room {
			return fmt.Errorf("needs %d %s, has room for %d", of.need, of.what, of.room)
		}
	}
	return nil
}

// Room is what the VIP needs at each of its hosts.
func (v VIP) Room() Room {
	r := Room{Endpoints: 1}
	for range v.Sources() {
		r.Sources++
	}
	for _, e := range v.Endpoints {
		if e.Key != Ports(v.Address) { // that is the VIP's own row
			r.Endpoints++
		}
		r.Backends += len(e.Backends)
		for range e.Rows() {
			r.Buckets++
		}
	}
	return r
}

// Rows are the buckets by row, and what they named before, if that is told; those that name nothing are left out.
func (e Endpoint) Rows() iter.Seq[int] {
	names := func(slots []model.Slot, first int) bool {
		return first < len(slots) && slices.ContainsFunc(slots[first:min(first+BucketsPerRow, len(slots))], func(s model.Slot) bool { return s != 0 })
	}
	return func(yield func(int) bool) {
		for first := 0; first < len(e.Buckets); first += BucketsPerRow {
			if (names(e.Buckets, first) || names(e.Previous, first)) && !yield(first) {
				return
			}
		}
	}
}

// Sources are the outer sources of the VIP's packets, and whether it is a switch's. What is both is a switch's: no host of
// the VIP may have its address.
func (v VIP) Sources() iter.Seq2[netip.Addr, bool] {
	return func(yield func(netip.Addr, bool) bool) {
		for _, source := range v.Switches {
			if !yield(source, true) {
				return
			}
		}
		for _, source := range v.Peers {
			if _, is := slices.BinarySearchFunc(v.Switches, source, netip.Addr.Compare); !is && !yield(source, false) {
				return
			}
		}
	}
}
