package table

import (
	"fmt"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// Switches has a row for each switch.
func Switches(nodes []*weirv1.Node, now time.Time) *Table {
	t := New("", "no switches: they appear here once weir-switch runs",
		"NAME", "STATE", "GENERATION", "DRIVER", "HOSTS", "ECMP", "TUNNELS", "PROGRAMMED", "ANNOUNCED")
	for _, n := range nodes {
		s := n.GetStatus().GetSwitch()
		state := NodeState(n, now)
		if n.GetDrained() != nil {
			state += ", drained"
		}
		t.Add(n.GetName(), state, NodeGeneration(n), s.GetDriver(), SwitchRows(s.GetHosts()), SwitchRows(s.GetEcmp()),
			SwitchRows(s.GetTunnels()), s.GetProgrammed(), s.GetAnnounced())
	}
	return t
}

// SwitchRows is "12/512": rows of a table of a switch that are in use, of all.
func SwitchRows(t *weirv1.SwitchTable) string {
	return fmt.Sprintf("%d/%d", t.GetUsed(), t.GetSize())
}

// Placements has a row for each VIP and switch that it is in, or is to be in.
func Placements(vips []*weirv1.VIP, now time.Time) *Table {
	t := New("", "no VIP is in a switch, or is to be in one", "VIP", "ADDRESS", "SWITCH", "PHASE", "PART", "SINCE", "REASON")
	for _, vip := range vips {
		placed := map[string]bool{}
		for _, p := range vip.GetStatus().GetSwitches() {
			placed[p.GetSwitch()] = true
			t.Add(vip.GetName(), vip.GetAddress(), p.GetSwitch(), p.GetPhase(), SwitchPart(p), Ago(p.GetSince(), now), p.GetReason())
		}
		if len(placed) == 0 && vip.GetHardware().GetPlacement() == "auto" {
			t.Add(vip.GetName(), vip.GetAddress(), "", "software", "", hardwareReason(vip))
		}
		for _, name := range vip.GetHardware().GetSwitches() {
			if !placed[name] && vip.GetHardware().GetPlacement() == "require" {
				t.Add(vip.GetName(), vip.GetAddress(), name, "software", "", "", hardwareReason(vip))
			}
		}
	}
	return t
}

// SwitchPart is "2/3": which part of a VIP's members a switch has; empty: all.
func SwitchPart(p *weirv1.SwitchPlace) string {
	if p.GetParts() == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.GetPart(), p.GetParts())
}

// hardwareReason is why a VIP is not in all its switches.
func hardwareReason(vip *weirv1.VIP) string {
	for _, c := range vip.GetStatus().GetConditions() {
		if c.GetType() == "hardware" {
			return c.GetMessage()
		}
	}
	return ""
}
