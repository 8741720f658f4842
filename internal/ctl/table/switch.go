package table

import (
	"fmt"
	"math"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/elapsed"
	"github.com/weirlb/weir/internal/planinput"
	"github.com/weirlb/weir/internal/traffic"
)

// Switches has a row for each switch.
func Switches(nodes []*weirv1.Node, now time.Time) *Table {
	t := New("", "no switches: they appear here once weir-switch runs",
		"NAME", "STATE", "GENERATION", "DRIVER", "HOSTS", "ECMP", "TUNNELS", "PROGRAMMED", "ANNOUNCED", "PORTS UP")
	for _, n := range nodes {
		s := n.GetStatus().GetSwitch()
		state := NodeState(n, now)
		if n.GetDrained() != nil {
			state += ", drained"
		}
		t.Add(n.GetName(), state, NodeGeneration(n), s.GetDriver(), SwitchRows(s.GetHosts()), SwitchRows(s.GetEcmp()),
			SwitchRows(s.GetTunnels()), s.GetProgrammed(), s.GetAnnounced(), portsUp(s.GetPorts()))
	}
	return t
}

// portsUp is "30/32": ports whose link is up, of all.
func portsUp(ports []*weirv1.SwitchPort) string {
	up := 0
	for _, p := range ports {
		if p.GetUp() {
			up++
		}
	}
	return fmt.Sprintf("%d/%d", up, len(ports))
}

// SwitchPorts has a row for each port of a switch.
func SwitchPorts(ports []*weirv1.SwitchPort) *Table {
	t := New("  ", "none are known", "PORT", "LINK", "SPEED", "NEIGHBOUR", "ITS PORT", "RECEIVED", "SENT", "ERRORS", "UPS AND DOWNS")
	bits := func(bytes uint64) string { return planinput.FormatBits(traffic.Rate(bytes / 125)) }
	for _, p := range ports {
		link, speed := "down", ""
		if p.GetUp() {
			link = "up"
		}
		if mbit := p.GetMbitPerS(); mbit > 0 {
			speed = planinput.FormatBits(traffic.Rate(min(mbit, math.MaxInt32) * 1000))
		}
		t.Add(p.GetName(), link, speed, p.GetNeighbour(), p.GetNeighbourPort(), bits(p.GetReceivedBytesPerS()), bits(p.GetSentBytesPerS()), p.GetErrors(), p.GetChanges())
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
			t.Add(vip.GetName(), vip.GetAddress(), p.GetSwitch(), p.GetPhase(), SwitchPart(p), elapsed.Ago(p.GetSince(), now), p.GetReason())
		}
		if len(placed) == 0 && vip.GetHardware().GetPlacement() == "auto" {
			t.Add(vip.GetName(), vip.GetAddress(), "", "software", "", "", hardwareReason(vip))
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
