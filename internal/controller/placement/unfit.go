package placement

import (
	"fmt"

	"github.com/weirlb/weir/internal/condition"
	"github.com/weirlb/weir/internal/desired/switchconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/store"
)

// group is what a switch would be told of a VIP, as of the generation of what it follows from.
type group struct {
	written model.Generation
	switchconfig.Group
}

// unfit says why a switch can't hold a VIP as it is, or nothing.
func (w *Watch) unfit(s *store.State, vip model.VIP, node model.Node) string {
	if node.Role != model.RoleSwitch {
		return "no switch of that name is registered"
	}
	if vip.ChosenSwitches() { // admission lets its owner ask for what switches do not do, and muxes have it then
		if obstacle := hardware.Obstacle(vip); obstacle != nil {
			return obstacle.Error()
		}
	}
	if said := w.said[node.Name].tables; hardware.TIPAt(vip, node.Name).IsValid() && said.GetDriver() != "" && !said.GetTips() {
		return fmt.Sprintf("driver %s takes off no outer header: the switch can have no TIP", said.GetDriver())
	}
	group, state := w.groupOf(s, vip), s.Placements.At(vip.Address)
	first := len(vip.Hardware.TIPs) > 0 && !behindTIP(vip, node.Name, state.Places[node.Name])
	hasBackends := state.Places[node.Name].Phase.Held() && len(state.TIPs()) == 0
	if first && !hasBackends && len(group) > 0 { // it needs what TIPs do: unfitEntry says
		return ""
	}
	return group.Unfit(node)
}

// groupOf is what switches would be told of a VIP.
func (w *Watch) groupOf(s *store.State, vip model.VIP) switchconfig.Group {
	written := condition.GenerationOf(s, vip)
	g, known := w.groups[vip.Address]
	if !known || g.written != written {
		g = group{written, switchconfig.GroupOf(s.State, vip)}
		w.groups[vip.Address] = g
	}
	return g.Group
}
