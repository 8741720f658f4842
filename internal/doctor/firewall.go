package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// seenHooks are those that packets of Weir's programs, or of a host's own services, pass.
var seenHooks = []nftables.ChainHook{
	*nftables.ChainHookPrerouting, *nftables.ChainHookInput, *nftables.ChainHookOutput, *nftables.ChainHookPostrouting,
}

// ctInvalid is the bit of conntrack's state that calls a packet invalid.
const ctInvalid = 1

func firewall(_ context.Context, s Subject) []Finding {
	dropping, invalid, err := droppingChains()
	if err != nil {
		return unknown(err, "look at nft list ruleset")
	}
	var found []Finding
	if len(dropping) > 0 {
		found = append(found, bad(Warn, "accept "+wantsThrough[s.Role], "nftables drops by default in %s", strings.Join(dropping, ", "))...)
	}
	if len(invalid) > 0 && s.Role == Host {
		found = append(found, bad(Warn, "accept them to the ports of workloads: they keep silent connections alive",
			"nftables drops what conntrack calls invalid in %s", strings.Join(invalid, ", "))...)
	}
	if len(found) == 0 {
		return ok("nftables drops nothing by default")
	}
	return found
}

var wantsThrough = map[Role]string{
	Mux:     "TCP port 179 from and to the routers, TCP to the managers, ICMP; packets of VIPs go past nftables",
	Host:    "TCP to the managers, and clients at the ports of this host's own services; packets in tunnels go past nftables",
	Manager: "TCP at the ports of --listen, from muxes, hosts and operators",
}

// droppingChains names the chains whose policy is drop, and those with a rule that drops what is invalid.
func droppingChains() (dropping, invalid []string, err error) {
	connection, err := nftables.New()
	if err != nil {
		return nil, nil, fmt.Errorf("ask nftables: %w", err)
	}
	chains, err := connection.ListChains()
	if err != nil {
		return nil, nil, fmt.Errorf("ask nftables for its chains: %w", err)
	}
	for _, chain := range chains {
		name := chain.Table.Name + " " + chain.Name
		if chain.Hooknum != nil && chain.Policy != nil && *chain.Policy == nftables.ChainPolicyDrop && slices.Contains(seenHooks, *chain.Hooknum) {
			dropping = append(dropping, name)
		}
		rules, err := connection.GetRules(chain.Table, chain)
		if err != nil {
			return nil, nil, fmt.Errorf("ask nftables for the rules of %s: %w", name, err)
		}
		if slices.ContainsFunc(rules, dropsInvalid) {
			invalid = append(invalid, name)
		}
	}
	return dropping, invalid, nil
}

// dropsInvalid knows "ct state invalid drop", as nft writes it.
func dropsInvalid(rule *nftables.Rule) bool {
	state, matches, drops := false, false, false
	for _, e := range rule.Exprs {
		switch e := e.(type) {
		case *expr.Ct:
			state = e.Key == expr.CtKeySTATE
		case *expr.Bitwise:
			matches = state && len(e.Mask) > 0 && e.Mask[0]&ctInvalid != 0
		case *expr.Cmp:
			matches = matches || state && len(e.Data) > 0 && e.Op == expr.CmpOpEq && e.Data[0]&ctInvalid != 0
		case *expr.Verdict:
			drops = e.Kind == expr.VerdictDrop
		case *expr.Reject:
			drops = true
		}
	}
	return matches && drops
}
