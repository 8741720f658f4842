package hardware

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// MaxSwitches bounds the switches of a VIP, MaxSources the outer sources that a TIP takes packets from.
const (
	MaxSwitches = 64
	MaxSources  = 256
	// MaxUnrouted bounds the VIPs that a switch names as those that it has withdrawn for want of a route.
	MaxUnrouted = 256
)

// refusals collects all that is wrong, so that a user corrects a manifest in one go.
type refusals struct{ model.FieldErrorList }

func (r *refusals) refuse(field, format string, args ...any) { r.Refuse(field, format, args...) }

// Validate says everything that is wrong with the VIP's hardware taken alone, and what the VIP wants that a switch does not
// do, as joined FieldErrors.
func Validate(vip model.VIP) error {
	h := vip.Hardware
	if h == nil {
		return nil
	}
	var r refusals
	if h.Placement != model.PlacementNever && h.Placement != model.PlacementRequire && h.Placement != model.PlacementAuto {
		r.refuse("hardware.placement", "must be %s, %s or %s, is %.64q", model.PlacementNever, model.PlacementRequire, model.PlacementAuto, string(h.Placement))
	}
	r.chosen(h)
	if h.UDP != model.UDPAtHome && h.UDP != model.UDPLocal {
		r.refuse("hardware.udp", "must be %s or %s, is %.64q", model.UDPAtHome, model.UDPLocal, string(h.UDP))
	}
	if h.Flood != model.FloodWithdraw && h.Flood != model.FloodStay {
		r.refuse("hardware.flood", "must be %s or %s, is %.64q", model.FloodWithdraw, model.FloodStay, string(h.Flood))
	}
	if h.ByHost && h.UDP == model.UDPLocal {
		r.refuse("hardware.udp", "must be %s with byHost: a host's list of backends changes, and flows would end", model.UDPAtHome)
	}
	switch n := len(h.Switches); {
	case n > MaxSwitches:
		r.refuse("hardware.switches", "must be at most %d, are %d", MaxSwitches, n)
	case n == 0 && vip.InHardware():
		r.refuse("hardware.switches", "must name at least one switch: placement is %s", model.PlacementRequire)
	default:
		r.switches(h.Switches)
	}
	r.tips(vip)
	if vip.InHardware() {
		r.obstacles(vip)
	}
	return r.Err()
}

// chosen refuses what does not go together with switches that managers choose.
func (r *refusals) chosen(h *model.Hardware) {
	switch auto := h.Placement == model.PlacementAuto; {
	case !auto && h.Spread != 0:
		r.refuse("hardware.spread", "is of placement %s alone", model.PlacementAuto)
	case h.Spread < 0 || h.Spread > MaxSwitches:
		r.refuse("hardware.spread", "must be auto, one or a number from 1 to %d", MaxSwitches)
	case auto && len(h.Switches) > 0:
		r.refuse("hardware.switches", "must be left out: with placement %s managers choose them", model.PlacementAuto)
	case auto && len(h.TIPs) > 0:
		r.refuse("hardware.tips", "must be left out: with placement %s managers choose switches", model.PlacementAuto)
	case h.Placement == model.PlacementNever && len(h.TIPs) > 0: // they would keep addresses from others for nothing
		r.refuse("hardware.tips", "is of placement %s alone", model.PlacementRequire)
	case auto && h.Split:
		r.refuse("hardware.split", "is of placement %s alone", model.PlacementRequire)
	case auto && h.UDP == model.UDPLocal:
		r.refuse("hardware.udp", "must be %s: with placement %s the VIP moves, and flows would end", model.UDPAtHome, model.PlacementAuto)
	}
}

// Obstacle is what the VIP wants that a switch does not do; nil: nothing. A VIP of placement auto stays with the muxes then.
func Obstacle(vip model.VIP) *model.FieldError {
	if vip.SNAT != nil {
		return &model.FieldError{Field: "snat", Reason: "costs answers a hop by a switch: name the switches, with placement " + string(model.PlacementRequire)}
	}
	var r refusals
	r.obstacles(vip)
	for _, first := range model.FieldErrors(r.Err()) {
		return first
	}
	return nil
}

func (r *refusals) obstacles(vip model.VIP) {
	r.whole(vip)
	for i, e := range vip.Endpoints {
		r.endpoint(fmt.Sprintf("endpoints[%d]", i), e)
	}
}

func (r *refusals) switches(names []string) {
	first := make(map[string]int, len(names))
	for i, name := range names {
		field := fmt.Sprintf("hardware.switches[%d]", i)
		if !model.ValidName(name) {
			r.refuse(field, "must be a DNS label (lower-case letters, digits and -, at most 63), is %.64q", name)
		}
		if j, taken := first[name]; taken {
			r.refuse(field, "is %s again, as switches[%d]", name, j)
			continue
		}
		first[name] = i
	}
}

// tips holds that TIPs are addresses of their own, at switches that have nothing else of the VIP.
func (r *refusals) tips(vip model.VIP) {
	h := vip.Hardware
	if len(h.TIPs) > MaxSwitches {
		r.refuse("hardware.tips", "must be at most %d, are %d", MaxSwitches, len(h.TIPs))
		return
	}
	if len(h.TIPs) > 0 && h.Split {
		r.refuse("hardware.split", "must be left out of a VIP with tips: these share the backends")
	}
	switches, addresses := map[string]bool{}, map[netip.Addr]bool{vip.Address: true}
	for _, name := range h.Switches {
		switches[name] = true
	}
	for i, t := range h.TIPs {
		field := fmt.Sprintf("hardware.tips[%d]", i)
		switch a := t.Address; {
		case !model.ValidName(t.Switch):
			r.refuse(field+".switch", "must be a DNS label (lower-case letters, digits and -, at most 63), is %.64q", t.Switch)
		case switches[t.Switch]:
			r.refuse(field+".switch", "%s has the VIP already: a switch has it once", t.Switch)
		case !a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "":
			r.refuse(field+".address", "must be a unicast address")
		case addresses[a]:
			r.refuse(field+".address", "%s is there already", a)
		case a.Is4() != h.TIPs[0].Address.Is4():
			r.refuse(field+".address", "must be of the family of the first TIP, %s", h.TIPs[0].Address)
		}
		switches[t.Switch], addresses[t.Address] = true, true
	}
}

// whole refuses what muxes do for a VIP and neither a switch nor the hosts that steer do.
//
// Consistency flow-table is not refused: what flows a mux remembers serves connections whose bucket moved, and hosts find
// the backend before by chaining, as muxes do that have not seen the flow.
func (r *refusals) whole(vip model.VIP) {
	leftOut := func(field, because string) { r.refuse(field, "must be left out of a VIP in hardware: %s", because) }
	if len(vip.Attachments) > 0 {
		leftOut("attachments", "switches do not know virtual networks")
	}
	if vip.Fastpath != nil {
		leftOut("fastpath", "muxes tell hosts of connections that may leave them, and do not see these")
	}
	if vip.Limits != nil {
		leftOut("limits", "switches do not count what clients send")
	}
	if vip.Overload != nil {
		leftOut("overload", "it acts on what muxes see")
	}
}

func (r *refusals) endpoint(path string, e model.Endpoint) {
	for _, list := range []struct {
		field string
		n     int
	}{
		{".allow", len(e.Allow)}, {".deny", len(e.Deny)}, {".allowLists", len(e.AllowLists)}, {".denyLists", len(e.DenyLists)},
	} {
		if list.n > 0 {
			r.refuse(path+list.field, "must be left out of a VIP in hardware: switches take packets of all sources")
		}
	}
	if e.SYNCookies == model.SYNCookiesAlways {
		r.refuse(path+".synCookies", "must be auto or never in a VIP in hardware: switches answer no SYN")
	}
}

// ValidateNode says everything that is wrong with a switch's node beside what model.Node.Validate says.
func ValidateNode(n model.Node) error {
	if n.Role != model.RoleSwitch {
		return nil
	}
	var r refusals
	if len(n.Addresses) > 2 || len(n.Addresses) == 2 && n.Addresses[0].Is4() == n.Addresses[1].Is4() {
		r.refuse("addresses", "must be one of each family at most: they are the outer sources of what a switch encapsulates")
	}
	return r.Err()
}
