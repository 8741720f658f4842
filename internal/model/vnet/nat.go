package vnet

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/weirlb/weir/internal/model"
)

// MaxNATBits bounds the addresses of a mux's NAT prefix: those behind it.
const MaxNATBits = 22

// NATsInMux says whether muxes are the clients of the VIP's backends in any network.
func NATsInMux(vip model.VIP) bool {
	return slices.ContainsFunc(vip.Attachments, func(a model.Attachment) bool { return a.Mode == model.ModeNATInMux })
}

// ValidateNATPrefixes says everything that is wrong with the NAT prefixes of a node taken alone, as joined FieldErrors.
func ValidateNATPrefixes(n model.Node) error {
	var r refusals
	families := map[bool]netip.Prefix{}
	for i, p := range n.NATPrefixes {
		field := "natPrefixes[" + strconv.Itoa(i) + "]"
		shortest := p.Addr().BitLen() - MaxNATBits
		switch reason := subnet(p); {
		case n.Role != model.RoleMux:
			r.refuse(field, "is for muxes only, is %s", p)
		case reason != "":
			r.refuse(field, "%s", reason)
		case p.Bits() < shortest:
			r.refuse(field, "must be at least %d bits long, is %s", shortest, p)
		case families[p.Addr().Is4()].IsValid():
			r.refuse(field, "must be of another family than natPrefixes[0]")
		}
		families[p.Addr().Is4()] = p
	}
	return r.Err()
}
