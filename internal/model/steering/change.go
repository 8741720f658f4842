package steering

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// Update is what changes of all VIPs of a host.
type Update struct {
	Changed []Change     // new VIPs, and those that changed
	Removed []netip.Addr // VIPs that no switch holds any more
}

// IsEmpty says whether nothing changes.
func (u Update) IsEmpty() bool { return len(u.Changed)+len(u.Removed) == 0 }

// Change is what changes of a VIP. What is large and stays is left out: the host has it.
type Change struct {
	Address         netip.Addr
	KeepsSources    bool
	Switches, Peers []netip.Addr
	Ping, ByHost    bool
	Endpoints       []EndpointChange    // new or changed
	Removed         []model.EndpointKey // endpoints
}

// EndpointChange is what changes of an endpoint.
type EndpointChange struct {
	Endpoint                    // without what is kept
	KeepsBackends, KeepsBuckets bool
	Moves                       []Move // of buckets that are kept
}

// Move is what a bucket names from now on.
type Move struct {
	Bucket         uint32
	Slot, Previous model.Slot
}

// Diff is how VIPs change; both are by address.
func Diff(before, after map[netip.Addr]VIP) Update {
	var u Update
	for address, vip := range after {
		was, had := before[address]
		if c, differs := DiffVIP(was, vip); differs || !had {
			u.Changed = append(u.Changed, c)
		}
	}
	for address := range before {
		if _, kept := after[address]; !kept {
			u.Removed = append(u.Removed, address)
		}
	}
	slices.SortFunc(u.Changed, func(a, b Change) int { return a.Address.Compare(b.Address) })
	slices.SortFunc(u.Removed, netip.Addr.Compare)
	return u
}

// DiffVIP is how one changes, and whether it does; it begins as the zero value.
func DiffVIP(before, after VIP) (c Change, differs bool) {
	c.Address, c.Ping, c.ByHost = after.Address, after.Ping, after.ByHost
	if slices.Equal(before.Switches, after.Switches) && slices.Equal(before.Peers, after.Peers) {
		c.KeepsSources = true
	} else {
		c.Switches, c.Peers = after.Switches, after.Peers
	}
	for _, e := range after.Endpoints {
		was, _ := before.endpoint(e.Key)
		if !was.Equal(e) {
			c.Endpoints = append(c.Endpoints, diffEndpoint(was, e))
		}
	}
	for _, e := range before.Endpoints {
		if _, kept := after.endpoint(e.Key); !kept {
			c.Removed = append(c.Removed, e.Key)
		}
	}
	return c, !c.KeepsSources || before.Ping != after.Ping || before.ByHost != after.ByHost || len(c.Endpoints)+len(c.Removed) > 0
}

func diffEndpoint(before, after Endpoint) EndpointChange {
	c := EndpointChange{Endpoint: after}
	if before.Key == after.Key && slices.Equal(before.Backends, after.Backends) {
		c.KeepsBackends, c.Backends = true, nil
	}
	if before.Key != after.Key || len(before.Buckets) != len(after.Buckets) {
		return c
	}
	var moves []Move
	for i := range after.Buckets {
		slot, previous := after.Choice(uint32(i))
		if was, wasPrevious := before.Choice(uint32(i)); slot != was || previous != wasPrevious {
			moves = append(moves, Move{uint32(i), slot, previous})
		}
	}
	if 2*len(moves) < len(after.Buckets) || len(after.Buckets) == 0 { // else it is no shorter
		c.KeepsBuckets, c.Moves, c.Buckets, c.Previous = true, moves, nil, nil
	}
	return c
}

func (v VIP) endpoint(key model.EndpointKey) (Endpoint, bool) {
	i := slices.IndexFunc(v.Endpoints, func(e Endpoint) bool { return e.Key == key })
	if i < 0 {
		return Endpoint{}, false
	}
	return v.Endpoints[i], true
}

// Apply makes of VIPs what they are after an update. It changes nothing of what it is given, and refuses what can't follow
// on it.
func Apply(before map[netip.Addr]VIP, u Update) (map[netip.Addr]VIP, error) {
	after := make(map[netip.Addr]VIP, len(before)+len(u.Changed))
	for address, vip := range before {
		after[address] = vip
	}
	for _, address := range u.Removed {
		delete(after, address)
	}
	for _, c := range u.Changed {
		vip, err := c.apply(after[c.Address])
		if err != nil {
			return nil, fmt.Errorf("steering of %s: %w", c.Address, err)
		}
		after[c.Address] = vip
	}
	return after, nil
}

func (c Change) apply(vip VIP) (VIP, error) {
	vip.Address, vip.Ping, vip.ByHost = c.Address, c.Ping, c.ByHost
	if !c.KeepsSources {
		vip.Switches, vip.Peers = c.Switches, c.Peers
	}
	kept := slices.DeleteFunc(slices.Clone(vip.Endpoints), func(e Endpoint) bool { return slices.Contains(c.Removed, e.Key) })
	for _, change := range c.Endpoints {
		if change.Key.VIP != c.Address {
			return VIP{}, fmt.Errorf("endpoint %s is another VIP's", change.Key)
		}
		i := slices.IndexFunc(kept, func(e Endpoint) bool { return e.Key == change.Key })
		if i < 0 {
			kept = append(kept, Endpoint{Key: change.Key})
			i = len(kept) - 1
		}
		e, err := change.apply(kept[i])
		if err != nil {
			return VIP{}, fmt.Errorf("endpoint %s: %w", change.Key, err)
		}
		kept[i] = e
	}
	slices.SortFunc(kept, func(a, b Endpoint) int { return a.Key.Compare(b.Key) })
	vip.Endpoints = kept
	return vip, nil
}

func (c EndpointChange) apply(before Endpoint) (Endpoint, error) {
	e := c.Endpoint
	if c.KeepsBackends {
		e.Backends = before.Backends
	}
	if c.KeepsBuckets {
		e.Buckets, e.Previous = before.Buckets, before.Previous
		if len(c.Moves) > 0 {
			e.Buckets, e.Previous = slices.Clone(e.Buckets), make([]model.Slot, len(e.Buckets))
			copy(e.Previous, before.Previous)
		}
		for _, m := range c.Moves {
			if int(m.Bucket) >= len(e.Buckets) {
				return Endpoint{}, fmt.Errorf("bucket %d moves, and there are %d", m.Bucket, len(e.Buckets))
			}
			e.Buckets[m.Bucket], e.Previous[m.Bucket] = m.Slot, m.Previous
		}
	}
	return e, e.validate()
}

// validate refuses an endpoint that the data plane can't have.
func (e Endpoint) validate() error {
	n := len(e.Buckets)
	if n&(n-1) != 0 || n > MaxBuckets {
		return fmt.Errorf("must have a power of two of buckets up to %d, has %d", MaxBuckets, n)
	}
	if len(e.Previous) != 0 && len(e.Previous) != n {
		return fmt.Errorf("%d of %d buckets say what they named before", len(e.Previous), n)
	}
	for i, b := range e.Backends {
		if b.Slot == 0 || b.Slot > model.MaxBackends || i > 0 && b.Slot <= e.Backends[i-1].Slot {
			return fmt.Errorf("slots must be 1 to %d, in order: %d", model.MaxBackends, b.Slot)
		}
	}
	for _, slots := range [][]model.Slot{e.Buckets, e.Previous} {
		for _, slot := range slots {
			if slot > model.MaxBackends {
				return fmt.Errorf("a bucket names slot %d", slot)
			}
		}
	}
	return nil
}
