package neighbor

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"slices"
)

// Mux is a mux that can answer for VIPs in its prefixes.
type Mux struct {
	Name     string         `json:"name"`
	Prefixes []netip.Prefix `json:"prefixes"`
}

// Covers says whether the mux can answer for the VIP.
func (m Mux) Covers(vip netip.Addr) bool {
	return slices.ContainsFunc(m.Prefixes, func(p netip.Prefix) bool { return p.Contains(vip) })
}

// Owner is the mux of these that answers for the VIP: the one of the highest score (rendezvous hashing), so that a mux which
// comes or goes moves no VIP but its own. Empty: none can.
func Owner(vip netip.Addr, muxes []Mux) string {
	owner := ""
	for _, m := range muxes {
		if m.Covers(vip) && (owner == "" || isBefore(vip, m.Name, owner)) {
			owner = m.Name
		}
	}
	return owner
}

// isBefore says whether mux a, and not b, owns a VIP that both can answer for.
func isBefore(vip netip.Addr, a, b string) bool {
	of, other := score(vip, a), score(vip, b)
	return of > other || of == other && a < b
}

func score(vip netip.Addr, mux string) uint64 {
	address := vip.As16()
	sum := sha256.Sum256(append(address[:], mux...))
	return binary.BigEndian.Uint64(sum[:])
}
