package compile

import (
	"cmp"
	"net/netip"
	"strconv"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// HardwareMessage writes h; nil stays nil.
func HardwareMessage(h *model.Hardware) *weirv1.Hardware {
	if h == nil {
		return nil
	}
	p := &weirv1.Hardware{Placement: string(h.Placement), Switches: h.Switches, Udp: string(h.UDP), Split: h.Split, ByHost: h.ByHost, Flood: string(h.Flood)}
	if h.Placement == model.PlacementAuto {
		p.Spread = spreadText(h.Spread)
	}
	for _, t := range h.TIPs {
		p.Tips = append(p.Tips, &weirv1.TIP{Switch: t.Switch, Address: t.Address.String()})
	}
	return p
}

// Words of the field spread.
const (
	spreadAuto = "auto"
	spreadOne  = "one"
)

func spreadText(spread int) string {
	switch spread {
	case 0:
		return spreadAuto
	case 1:
		return spreadOne
	}
	return strconv.Itoa(spread)
}

// spread reads the field; what it can't read is -1.
func spread(text string) int {
	switch text {
	case "", spreadAuto:
		return 0
	case spreadOne:
		return 1
	}
	if n, err := strconv.ParseUint(text, 10, 16); err == nil && n > 0 {
		return int(n)
	}
	return -1
}

// Hardware reads it, with defaults for what was left out; nil stays nil.
func Hardware(p *weirv1.Hardware) *model.Hardware {
	if p == nil {
		return nil
	}
	h := &model.Hardware{
		Placement: cmp.Or(model.Placement(p.GetPlacement()), model.PlacementNever),
		Switches:  p.GetSwitches(),
		Spread:    spread(p.GetSpread()),
		UDP:       cmp.Or(model.UDPHome(p.GetUdp()), model.UDPAtHome),
		Split:     p.GetSplit(),
		ByHost:    p.GetByHost(),
		Flood:     cmp.Or(model.OnFlood(p.GetFlood()), model.FloodWithdraw),
	}
	for _, t := range p.GetTips() {
		address, _ := netip.ParseAddr(t.GetAddress()) // what it can't read is refused with the rest
		h.TIPs = append(h.TIPs, model.TIP{Switch: t.GetSwitch(), Address: address})
	}
	return h
}
