package vnet

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// Overlay is what virtual networks need of the cluster.
type Overlay struct {
	Labels map[string]string
	// Addresses are those that hosts send the first packets of connections to, in VXLAN: one of a family at most. All muxes
	// announce them.
	Addresses []netip.Addr
	// LocalPrefixes have the addresses that servers know clients of virtual networks by: one of each family.
	LocalPrefixes []netip.Prefix
}

// OverlayName is that of the one Overlay that a cluster may have.
const OverlayName = "default"

// Lengths of Overlay.LocalPrefixes: of IPv4 rows of a session table are counted in what is behind the prefix.
const (
	MinLocal4 = 8
	MaxLocal4 = 16
	Local6    = 48
)

// DefaultLocalPrefixes are Overlay.LocalPrefixes that are left out: the shared address space of RFC 6598, and a unique
// local prefix of IPv6.
var DefaultLocalPrefixes = []netip.Prefix{netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fd57:4549:5200::/48")}

// Local is the local prefix of the family of a; not valid: there is none.
func (o Overlay) Local(is4 bool) netip.Prefix {
	for _, p := range o.LocalPrefixes {
		if p.Addr().Is4() == is4 {
			return p
		}
	}
	return netip.Prefix{}
}

// Validate says everything that is wrong with the overlay taken alone, as joined FieldErrors.
func (o Overlay) Validate() error {
	var r refusals
	if len(o.Addresses) == 0 {
		r.refuse("addresses", "must have at least one")
	}
	families := map[bool]int{}
	for i, a := range o.Addresses {
		field := fmt.Sprintf("addresses[%d]", i)
		if reason := model.Routable(a); reason != "" {
			r.refuse(field, "%s", reason)
			continue
		}
		if j, taken := families[a.Is4()]; taken {
			r.refuse(field, "must be of another family than addresses[%d]", j)
		}
		families[a.Is4()] = i
	}
	clear(families)
	for i, p := range o.LocalPrefixes {
		field := fmt.Sprintf("localPrefixes[%d]", i)
		if reason := subnet(p); reason != "" {
			r.refuse(field, "%s", reason)
			continue
		}
		switch is4 := p.Addr().Is4(); {
		case is4 && (p.Bits() < MinLocal4 || p.Bits() > MaxLocal4):
			r.refuse(field, "must be /%d to /%d, is /%d", MinLocal4, MaxLocal4, p.Bits())
		case !is4 && p.Bits() != Local6:
			r.refuse(field, "must be a /%d, is a /%d", Local6, p.Bits())
		}
		if j, taken := families[p.Addr().Is4()]; taken {
			r.refuse(field, "must be of another family than localPrefixes[%d]", j)
		}
		families[p.Addr().Is4()] = i
		for _, a := range o.Addresses {
			if p.Contains(a) {
				r.refuse(field, "has %s, which muxes announce", a)
			}
		}
	}
	if len(o.LocalPrefixes) == 1 {
		r.refuse("localPrefixes", "must have one of each family, or none for the default ones")
	}
	return r.Err()
}
