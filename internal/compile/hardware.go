package compile

import (
	"cmp"
	"strconv"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// HardwareMessage writes h; nil stays nil.
func HardwareMessage(h *model.Hardware) *weirv1.Hardware {
	if h == nil {
		return nil
	}
	return &weirv1.Hardware{Placement: string(h.Placement), Switches: h.Switches, Udp: string(h.UDP), Split: h.Split, ByHost: h.ByHost}
}

// Hardware reads it, with defaults for what was left out; nil stays nil.
func Hardware(p *weirv1.Hardware) *model.Hardware {
	if p == nil {
		return nil
	}
	return &model.Hardware{
		Placement: cmp.Or(model.Placement(p.GetPlacement()), model.PlacementNever),
		Switches:  p.GetSwitches(),
		Spread:    spread(p.GetSpread()),
		UDP:       cmp.Or(model.UDPHome(p.GetUdp()), model.UDPAtHome),
		Split:     p.GetSplit(),
		ByHost:    p.GetByHost(),
	}
}
