package admission

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// Node says whether n may register: its name is not taken by a node of another role, and its addresses and source
// prefixes are in allowed, and nobody else's. Without allowed they must be in no pool and no tenant's ranges either: those
// are addresses of VIPs, although there may be no VIP of them yet.
func Node(s desired.State, n model.Node, tenants *Tenants, allowed []netip.Prefix) error {
	a := nodeAdmission{State: s, node: n, tenants: tenants, allowed: allowed}
	if other, taken := s.Nodes.Get(n.Name); taken && other.Role != n.Role {
		a.refuse("name", "%s is registered as a %s already: take another --name", n.Name, other.Role)
	}
	for i, p := range n.Prefixes {
		a.prefix(fmt.Sprintf("prefixes[%d]", i), p)
	}
	for i, p := range n.NATPrefixes {
		a.natPrefix(fmt.Sprintf("natPrefixes[%d]", i), p)
	}
	for i, address := range n.Addresses {
		a.address(fmt.Sprintf("addresses[%d]", i), address)
	}
	return errors.Join(a.errs.Err(), NodeJoin(n, allowed))
}

// NodeJoin says whether the addresses and prefixes of n are those that its join allows; none is any.
func NodeJoin(n model.Node, allowed []netip.Prefix) error {
	if len(allowed) == 0 {
		return nil
	}
	a := nodeAdmission{node: n, allowed: allowed}
	a.joinPrefixes("prefixes", n.Prefixes)
	a.joinPrefixes("natPrefixes", n.NATPrefixes)
	a.joinPrefixes("neighborPrefixes", n.NeighborPrefixes)
	for i, address := range n.Addresses {
		if !slices.ContainsFunc(allowed, func(in netip.Prefix) bool { return in.Contains(address) }) {
			a.refuse(fmt.Sprintf("addresses[%d]", i), "%s is not in what %s joined for: %s", address, n.Name, joined(allowed))
		}
	}
	return a.errs.Err()
}

func (a *nodeAdmission) joinPrefixes(field string, prefixes []netip.Prefix) {
	for i, p := range prefixes {
		if !isInside(p, a.allowed) {
			a.refuse(fmt.Sprintf("%s[%d]", field, i), "%s is not in what %s joined for: %s", p, a.node.Name, joined(a.allowed))
		}
	}
}

// isInside says whether all addresses of p are in one of the prefixes.
func isInside(p netip.Prefix, prefixes []netip.Prefix) bool {
	return slices.ContainsFunc(prefixes, func(in netip.Prefix) bool { return in.Bits() <= p.Bits() && in.Contains(p.Addr()) })
}

// nodeAdmission is one call of Node.
type nodeAdmission struct {
	desired.State
	node    model.Node
	tenants *Tenants
	allowed []netip.Prefix
	errs    model.FieldErrorList
}

func (a *nodeAdmission) refuse(field, format string, args ...any) {
	a.errs.Refuse(field, format, args...)
}

// prefix holds that hosts accept packets from no address of somebody else.
func (a *nodeAdmission) prefix(field string, p netip.Prefix) {
	for vip, used := range usedIn(a.State, p) {
		a.refuse(field, "%s has %s, an address of VIP %s or of its backends", p, used, vip)
	}
	for u := range a.Addresses.In(p) {
		if u.As == desired.AsNode && u.Name != a.node.Name {
			a.refuse(field, "%s has %s, an address of node %s", p, u.Address, u.Name)
			break
		}
	}
	for other := range a.MuxNodes() {
		if other.Name != a.node.Name && slices.ContainsFunc(other.Prefixes, p.Overlaps) {
			a.refuse(field, "%s overlaps source addresses of mux %s", p, other.Name)
		}
		if other.Name != a.node.Name && slices.ContainsFunc(other.NATPrefixes, p.Overlaps) {
			a.refuse(field, "%s overlaps a NAT prefix of mux %s", p, other.Name)
		}
	}
}

// natPrefix holds that answers of backends to its addresses are this mux's alone.
func (a *nodeAdmission) natPrefix(field string, p netip.Prefix) {
	a.prefix(field, p)
	if slices.ContainsFunc(a.node.Addresses, p.Contains) || slices.ContainsFunc(a.node.Prefixes, p.Overlaps) {
		a.refuse(field, "%s has source addresses of the mux itself", p)
	}
	if o := a.Networks.Overlay; o != nil {
		if slices.ContainsFunc(o.Addresses, p.Contains) {
			a.refuse(field, "%s has an address of the overlay", p)
		}
		if slices.ContainsFunc(o.LocalPrefixes, p.Overlaps) {
			a.refuse(field, "%s overlaps %s, by which servers know clients of virtual networks", p, o.Local(p.Addr().Is4()))
		}
	}
	if len(a.allowed) > 0 {
		return // somebody has named it
	}
	for pool := range a.Pools.Values() {
		if slices.ContainsFunc(pool.Prefixes, p.Overlaps) && !isInside(p, pool.Exclusions) {
			a.refuse(field, "%s overlaps pool %s: exclude it there, or let the mux join by a token with --addresses", p, pool.Name)
		}
	}
}

// address holds that an address is nobody else's.
func (a *nodeAdmission) address(field string, address netip.Addr) {
	for u := range a.Addresses.Of(address, desired.AsVIP) {
		a.refuse(field, "%s is the address of VIP %s", address, u.Name)
	}
	for _, as := range []desired.Purpose{desired.AsBackend, desired.AsTunnel} {
		for u := range a.Addresses.Of(address, as) {
			if u.Host != a.node.Name {
				a.refuse(field, "%s leads to a backend of VIP %s on %s", address, u.Name, u.Host)
			}
		}
	}
	for u := range a.Addresses.Of(address, desired.AsTIP) {
		a.refuse(field, "%s is a TIP of VIP %s", address, u.Name)
	}
	for u := range a.Addresses.Of(address, desired.AsNode) {
		if u.Name != a.node.Name {
			a.refuse(field, "%s is an address of node %s: if that is gone, weir delete node %s", address, u.Name, u.Name)
		}
	}
	if reason := ofOverlay(a.State, address); reason != "" {
		a.refuse(field, "%s %s", address, reason)
	}
	if mux := spread(a.State, address); mux != "" && mux != a.node.Name {
		a.refuse(field, "%s is in a prefix of mux %s", address, mux)
	}
	if len(a.allowed) > 0 {
		return // somebody has named it
	}
	for pool := range a.Pools.Values() {
		if pool.Covers(address) && !pool.Excludes(address) {
			a.refuse(field, "%s is of pool %s: exclude it there, or let the node join by a token with --addresses", address, pool.Name)
		}
	}
	if a.tenants.ranges.hasOther("", address) {
		a.refuse(field, "%s is in the ranges of a tenant: let the node join by a token with --addresses", address)
	}
}

// usedIn are the VIPs with an address in p, their own or one of their backends, each with the first.
func usedIn(s desired.State, p netip.Prefix) iter.Seq2[string, netip.Addr] {
	return func(yield func(string, netip.Addr) bool) {
		told := map[string]bool{}
		for u := range s.Addresses.In(p) {
			if u.As != desired.AsNode && !told[u.Name] {
				told[u.Name] = true
				if !yield(u.Name, u.Address) {
					return
				}
			}
		}
	}
}
