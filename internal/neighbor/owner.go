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
	owner, highest := "", uint64(0)
	for _, m := range muxes {
		if !m.Covers(vip) {
			continue
		}
		if s := score(vip, m.Name); owner == "" || s > highest || s == highest && m.Name < owner {
			owner, highest = m.Name, s
		}
	}
	return owner
}

func score(vip netip.Addr, mux string) uint64 {
	address := vip.As16()
	sum := sha256.Sum256(append(address[:], mux...))
	return binary.BigEndian.Uint64(sum[:])
}
