package condition

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/vipstatus"
)

// Reasons of an attachment that is in force and does not work yet, or not everywhere.
const (
	reasonNoKeys       = "NoKeys"
	reasonNoHostNumber = "NoHostNumber"
	reasonNoAgent      = "NoAgent"
	reasonNoNATPrefix  = "NoNATPrefix"
)

// attached says whether all networks that a VIP is to be in have it, or why some have not; false: there are none.
func attached(s *store.State, vip model.VIP) (*weirv1.Condition, bool) {
	if len(vip.Attachments) == 0 {
		return nil, false
	}
	var without []string
	var first network.State
	for _, a := range vip.Attachments {
		if state := s.Networks.StateOf(vip.Tenant, a); state != network.InForce {
			if without == nil {
				first = state
			}
			without = append(without, fmt.Sprintf("not to %s: %s", a.Network, state.Reason()))
		}
	}
	in := len(vip.Attachments) - len(without)
	share := fmt.Sprintf("attached to %d of %d networks", in, len(vip.Attachments))
	const most = 10
	if n := len(without); n > most {
		without = append(without[:most], fmt.Sprintf("and %d more", n-most))
	}
	c := Condition{True, string(network.InForce), share}
	switch {
	case len(without) > 0:
		c = Condition{False, string(first), strings.Join(append([]string{share}, without...), "; ")}
	default:
		if missing, works := isServed(s, vip); !works {
			c = Condition{missing.Status, missing.Reason, share + "; " + missing.Message}
		}
	}
	return c.toProto("attached", vipstatus.Condition{}), true
}

// isServed says whether muxes and hosts have all of a VIP that is attached, or what is missing.
func isServed(s *store.State, vip model.VIP) (missing Condition, all bool) {
	servers, clients := map[string]bool{}, map[string]bool{}
	for host := range nodeconfig.BackendHosts(vip) {
		servers[host] = true
	}
	generation := max(s.Written.At(vip.Name), s.OverlayWritten)
	for _, a := range vip.Attachments {
		generation = max(generation, s.NetworkWritten.At(a.Network))
		for host := range s.Networks.HostsIn(a.Network) {
			clients[host] = true
		}
	}
	isThere := func(host string) bool {
		_, without := network.VTEPOf(host)
		return without || s.Nodes.Has(host)
	}
	if gone := lacking(clients, isThere); len(gone) > 0 { // whose they are is not the VIP's tenant's to know
		return Condition{False, reasonNoAgent, fmt.Sprintf("%d of %d hosts with clients have no agent", len(gone), len(clients))}, false
	}
	if waits := desired.PendingOf(&s.State, maps.Keys(servers)); len(waits) > 0 {
		return Condition{False, ReasonPending, strings.Join(waits, ", ")}, false
	}
	hasNumber := func(host string) bool { return s.Networks.Numbers.Of(host) != 0 }
	if none := lacking(servers, hasNumber); len(none) > 0 {
		return Condition{False, reasonNoHostNumber, fmt.Sprintf("%d of %d hosts with backends have no number, as %s", len(none), len(servers), none[0])}, false
	}
	if none := lacking(clients, hasNumber); len(none) > 0 {
		return Condition{False, reasonNoHostNumber, fmt.Sprintf("%d of %d hosts with clients have no number", len(none), len(clients))}, false
	}
	if len(s.FBTMasters) == 0 {
		return Condition{False, reasonNoKeys, "muxes have no keys of FBTs yet"}, false
	}
	if without := withoutNAT(s, vip); len(without) > 0 {
		return Condition{False, reasonNoNATPrefix, fmt.Sprintf("%s, so servers' hosts do full NAT of what comes there", strings.Join(without, ", "))}, false
	}
	if c := programmed(s, generation); c.Reason == ReasonPending || c.Reason == ReasonRejected { // others are not of attachments
		return c, false
	}
	return Condition{}, true
}

// withoutNAT are muxes that the VIP's attachments ask for full NAT, and that can't do it, each with the reason.
func withoutNAT(s *store.State, vip model.VIP) (all []string) {
	asked := map[model.Family]bool{}
	for _, a := range vip.Attachments {
		if a.Mode == model.ModeNATInMux {
			asked[model.FamilyOf(a.Address)] = true
		}
	}
	for _, family := range slices.Sorted(maps.Keys(asked)) {
		var names []string
		for mux := range s.MuxNodes() {
			if !slices.ContainsFunc(mux.NATPrefixes, func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == family }) {
				names = append(names, mux.Name)
			}
		}
		if len(names) > 0 {
			all = append(all, fmt.Sprintf("%d muxes have no NAT prefix of %s, as %s", len(names), family, names[0]))
		}
	}
	return all
}

// lacking are the hosts that something does not hold of, in order.
func lacking(hosts map[string]bool, holds func(host string) bool) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(hosts)), holds)
}
