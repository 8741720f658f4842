package overload

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// What is told of a VIP's sources.
const (
	MostSources = 32  // prefixes
	LeastSource = 256 // packets, of a prefix
)

const (
	heavyHitters = 3         // VIPs that are named
	namedParts   = 2         // prefixes of sources that are named of each
	leastPart    = 1.0 / 128 // of a VIP's packets, of a prefix that counts
)

// HeavyHitter is a VIP and what came for it.
type HeavyHitter struct {
	VIP     netip.Addr
	Packets float64       // a second
	Share   float64       // of what came for all VIPs
	From    []SourceShare // the largest first; empty: not known, or nobody sends much
}

// HeavyHitters are the VIPs for which most comes, the busiest first.
func HeavyHitters(demands []Demand) []HeavyHitter {
	all, total := make([]HeavyHitter, 0, len(demands)), 0.0
	for _, a := range demands {
		if a.Offered.Packets > 0 {
			all = append(all, HeavyHitter{VIP: a.VIP, Packets: a.Offered.Packets, From: a.Sources})
			total += a.Offered.Packets
		}
	}
	slices.SortFunc(all, func(a, b HeavyHitter) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), a.VIP.Compare(b.VIP))
	})
	all = all[:min(len(all), heavyHitters)]
	for i := range all {
		all[i].Share = all[i].Packets / total
	}
	return all
}

// SourceShares are the parts of a VIP's packets that came from sources, which are about as many: those that count,
// the largest first, and the largest part that another prefix may have.
func SourceShares(sources []Source, packets float64) (parts []SourceShare, unnamed float64) {
	named := 0.0
	for _, s := range sources {
		named += s.Packets
	}
	for _, s := range sources {
		if share := s.Packets / max(packets, named); share >= leastPart {
			parts = append(parts, SourceShare{Prefix: s.Prefix, Share: share})
		}
	}
	slices.SortFunc(parts, func(a, b SourceShare) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), a.Prefix.Compare(b.Prefix))
	})
	unnamed = min(max(leastPart, LeastSource/max(packets, 1)), 1)
	if len(sources) >= MostSources {
		unnamed = max(unnamed, sources[len(sources)-1].Packets/max(packets, named))
	}
	return parts, unnamed
}

// Evidence tells people of an overload, in one line. So many VIPs are held to their share.
func (s State) Evidence(busy []HeavyHitter, held int) string {
	var line strings.Builder
	fmt.Fprintf(&line, "overloaded: %.0f packets a second are lost before the program sees them (%.1f %% of all), softirqs take %.0f %% of the busiest CPU",
		s.Lost, 100*s.Share, 100*s.SoftIRQ)
	if held > 0 {
		fmt.Fprintf(&line, "; VIPs that are held to their share: %d", held)
	}
	for i, t := range busy {
		line.WriteString([]string{"; most came for ", ", then "}[min(i, 1)])
		fmt.Fprintf(&line, "%s: %.0f a second, %.0f %%%s", t.VIP, t.Packets, 100*t.Share, from(t.From))
	}
	return line.String()
}

// from names the largest parts: " (40 % from 198.51.100.0/24)".
func from(parts []SourceShare) string {
	if len(parts) == 0 {
		return ""
	}
	named := make([]string, 0, namedParts)
	for _, p := range parts[:min(len(parts), namedParts)] {
		named = append(named, fmt.Sprintf("%.0f %% from %s", 100*p.Share, p.Prefix))
	}
	return " (" + strings.Join(named, ", ") + ")"
}

// Evidence tells people why a VIP loses packets, in one line.
func (c Cut) Evidence(a Demand) string {
	owner := "its"
	if a.Tenant != "" {
		owner = "tenant " + a.Tenant + "'s"
	}
	return fmt.Sprintf("the mux is overloaded and %.0f packets/s, %.0f bytes/s come, more than %s share of %.1f %%: %.1f %% are dropped%s",
		a.Offered.Packets, a.Offered.Bytes, owner, 100*c.TenantShare, 100*c.All, from(a.Sources))
}
