package condition

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/switchconfig"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/store/vipstatus"
)

// inHardware says whether switches serve a VIP; false: none is to, and none has anything of it.
func inHardware(s *store.State, vip model.VIP) (*weirv1.Condition, bool) {
	state := s.Placements.At(vip.Address)
	places, wanted := state.Places, wantedSwitches(state, vip)
	if !vip.InHardware() && !vip.ChosenSwitches() && len(places) == 0 {
		return nil, false
	}
	serving, worst, lines := 0, "", []string(nil)
	var since time.Time
	for _, name := range s.SwitchesAt(vip.Address) {
		place := places[name]
		line, reason := placeText(s, vip, name, place)
		if lines = append(lines, line); place.Serving() && !place.TIP.IsValid() {
			serving++
		}
		if since.Before(place.Since) {
			since = place.Since
		}
		worst = cmp.Or(worst, reason)
	}
	c := Condition{False, cmp.Or(worst, "Placing"), strings.Join(lines, "; ")}
	switch {
	case len(wanted) == 0 && vip.ChosenSwitches():
		c.Reason, c.Message = "Unplaced", strings.Join(append([]string{cmp.Or(state.Unplaced, "managers have not looked at it yet")}, lines...), "; ")
	case len(wanted) == 0:
		c.Reason = "Leaving"
	case !slices.ContainsFunc(wanted, func(name string) bool { return !places[name].Serving() }):
		c.Status, c.Reason = True, "Placed"
		if mux := announcing(s, vip.Address); mux != "" {
			c.Reason = "SharedWithMuxes"
			c.Message += fmt.Sprintf("; mux %s announces it too, as no aggregate of it covers the VIP", mux)
		}
	case serving > 0:
		c.Status, c.Reason = True, "PartlyPlaced"
	}
	if c.Status == True {
		c.Message += astray(s, vip)
	}
	return c.toProto("hardware", vipstatus.Condition{Status: c.Status, Since: since}), true
}

// manyAstray is of which part of an endpoint's packets people are told that they take a hop more.
const manyAstray = 0.2

// astray names the endpoints whose packets often come to hosts that have no backend of them.
func astray(s *store.State, vip model.VIP) (text string) {
	if len(vip.Endpoints) < 2 {
		return ""
	}
	group := switchconfig.GroupOf(s.State, vip)
	for _, e := range vip.Endpoints {
		if part := group.Astray(s.State, vip, e); part >= manyAstray {
			text += fmt.Sprintf("; %.0f %% of the packets of %s %d take one hop more: switches know no ports, and spread them over the backends of all endpoints",
				100*part, e.Protocol, e.Port)
		}
	}
	return text
}

// wantedSwitches are those that are to serve the VIP.
func wantedSwitches(state placementpolicy.State, vip model.VIP) []string {
	switch {
	case vip.InHardware():
		return hardware.Named(vip)
	case vip.ChosenSwitches():
		return state.Chosen
	}
	return nil
}

// placeText is where a VIP is of a switch, and a reason if it is not on its way.
func placeText(s *store.State, vip model.VIP, name string, place placementpolicy.Place) (text, reason string) {
	why, reason := notOnItsWay(s, vip, name, place)
	if reason == "" && !s.Streams.At(name) {
		if why = "the switch is not connected"; place.Phase != placementpolicy.Hardware {
			reason = "SwitchNotConnected"
		}
	}
	text = name + ": " + cmp.Or(string(place.Phase), "waits")
	if place.TIP.IsValid() {
		text += ", behind TIP " + place.TIP.String()
	}
	if place.Part.Of > 0 {
		text += ", part " + place.Part.String()
	}
	if why != "" {
		text += " (" + why + ")"
	}
	return text, reason
}

// notOnItsWay is why a VIP waits for a switch, and a reason.
func notOnItsWay(s *store.State, vip model.VIP, name string, place placementpolicy.Place) (why, reason string) {
	node := s.Nodes.At(name)
	switch {
	case node.Role != model.RoleSwitch:
		why, reason = "no switch of that name is registered", "NoSwitch"
	case s.Placements.At(vip.Address).Flood.Withdrawn:
		why, reason = "the VIP is flooded", "Flooded"
	case !node.Drained.IsZero():
		why, reason = "the switch is drained", "Drained"
	case place.Refuses():
		why, reason = place.Reason, "Refused"
	case place.Unrouted:
		why, reason = placementpolicy.NoRoute, "NoRoute"
	case place.Phase == placementpolicy.Hardware:
	case place.Host != "":
		why, reason = place.Reason, "HostRefuses"
	case place.Phase == placementpolicy.Evicted || place.Attempts > 0:
		why, reason = place.Reason, "Refused"
	case (vip.InHardware() || vip.ChosenSwitches()) && switchconfig.GroupOf(s.State, vip).Unfit(node) != "":
		why, reason = switchconfig.GroupOf(s.State, vip).Unfit(node), "Unfit"
	case place.Phase == "" && vip.InHardware() && len(vip.Hardware.TIPs) > 0 && !hardware.TIPAt(vip, name).IsValid():
		why = "until a TIP is announced"
	}
	return why, reason
}

// announcing is a connected mux that announces the VIP itself; empty: all announce an aggregate, which routers prefer the
// switches' routes to.
func announcing(s *store.State, vip netip.Addr) string {
	for mux := range s.MuxNodes() {
		if s.Streams.At(mux.Name) && !slices.ContainsFunc(mux.Aggregates, func(p netip.Prefix) bool { return p.Contains(vip) && !p.IsSingleIP() }) {
			return mux.Name
		}
	}
	return ""
}

// Places are where a VIP is of switches, as users are told.
func Places(s *store.State, vip model.VIP) []*weirv1.SwitchPlace {
	state := s.Placements.At(vip.Address)
	var all []*weirv1.SwitchPlace
	for _, name := range state.Switches() {
		place := state.Places[name]
		tip, why := "", place.Reason
		if place.TIP.IsValid() {
			tip = place.TIP.String()
		}
		if place.Unrouted {
			why = cmp.Or(why, placementpolicy.NoRoute)
		}
		all = append(all, &weirv1.SwitchPlace{
			Tip: tip, Switch: name, Phase: string(place.Phase), Since: timestamppb.New(place.Since), Reason: why, Attempts: place.Attempts,
			Part: place.Part.Number, Parts: place.Part.Of,
		})
	}
	return all
}

// Unsteered are the hosts of a VIP that do not steer it, as they say; reported is what a node said last.
func Unsteered(s *store.State, reported func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus), vip model.VIP) (all []*weirv1.SteeringRefusal) {
	if !s.Placements.Has(vip.Address) {
		return nil
	}
	address := vip.Address.String()
	_, hosts := desired.Steering(vip)
	for _, name := range slices.Sorted(hosts) {
		if !s.Streams.At(name) {
			continue
		}
		_, detail := reported(s, s.Nodes.At(name))
		said := detail.GetHost().GetSteeringRefused()
		i := slices.IndexFunc(said, func(r *weirv1.SteeringRefusal) bool { return r.GetVip() == address })
		if i < 0 {
			continue
		}
		all = append(all, &weirv1.SteeringRefusal{Vip: address, Host: name, Reason: events.CutMessage(said[i].GetReason())})
		if len(all) == steering.MaxRefusals {
			break
		}
	}
	return all
}

// Sizes adds to where a VIP is what it takes there; reported is what a node said last.
func Sizes(s *store.State, reported func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus), vip model.VIP, places []*weirv1.SwitchPlace) {
	state, group := s.Placements.At(vip.Address), switchconfig.GroupOf(s.State, vip)
	for _, p := range places {
		node, place := s.Nodes.At(p.GetSwitch()), state.Places[p.GetSwitch()]
		entry, part := group.EntryOf(state, place), placementpolicy.Part{}
		if !place.Phase.Held() || entry.Unfit(node) != "" {
			continue
		}
		if place.TIP.IsValid() || len(state.TIPs()) == 0 { // of a part the share is that of the whole
			entry, part = group, place.Part
		}
		_, detail := reported(s, node)
		size := entry.SizeOf(part, detail.GetSwitch().GetMembers(), detail.GetSwitch().GetWeights())
		p.Members, p.Entries, p.ShareErrorPercent = size.Members, size.Entries, 100*size.ShareError
	}
}
