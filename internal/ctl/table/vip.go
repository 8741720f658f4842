package table

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// VIPs has a row for each VIP. Weir status has the same table with another first column than NAME.
func VIPs(first string, vips []*weirv1.VIP) *Table {
	t := New("", "no VIPs: weir apply -f FILE makes some",
		first, "TENANT", "ADDRESS", "ENDPOINTS", "BACKENDS", "MUXES")
	for _, vip := range vips {
		var endpoints []string
		var all Tally
		for _, e := range vip.GetEndpoints() {
			endpoints = append(endpoints, e.GetProtocol()+"/"+PortName(e.GetPort()))
			for _, b := range e.GetBackends() {
				all.Add(b)
			}
		}
		t.Add(vip.GetName(), vip.GetTenant(), vip.GetAddress(), strings.Join(endpoints, ","), all,
			MuxShare(vip)+overloadHint(vip))
	}
	return t
}

// MuxShare is "2/2": the muxes that run the VIP's tables, of all.
func MuxShare(vip *weirv1.VIP) string {
	return fmt.Sprintf("%d/%d", vip.GetStatus().GetMuxesProgrammed(), vip.GetStatus().GetMuxesTotal())
}

// overloadHint says in a list that a VIP is not as usual: " (black-holed)".
func overloadHint(vip *weirv1.VIP) string {
	for _, c := range vip.GetStatus().GetConditions() {
		if c.GetType() != "overloaded" || c.GetStatus() != "true" {
			continue
		}
		switch c.GetReason() {
		case "BlackHoled":
			return " (black-holed)"
		case "Scrubbed":
			return " (scrubbed)"
		default:
			return " (limited)"
		}
	}
	return ""
}

// Tally counts backends by what becomes of new connections.
type Tally struct{ Total, Serving, Draining, Unhealthy, Unknown, Pending int }

// Add counts a backend.
func (t *Tally) Add(b *weirv1.Backend) {
	t.Total++
	switch health := model.Health(b.GetStatus().GetHealth()); {
	case health == model.HealthPending:
		t.Pending++
	case b.Weight != nil && b.GetWeight() == 0:
		t.Draining++
	case health == model.HealthUnhealthy:
		t.Unhealthy++
	case health == model.HealthUnknown || health == "":
		t.Unknown++
	default:
		t.Serving++
	}
}

// String is "5/6 (1 unhealthy)": those that serve, of all, and why others do not.
func (t Tally) String() string {
	text := fmt.Sprintf("%d/%d", t.Serving, t.Total)
	var rest []string
	for _, c := range []struct {
		n    int
		what string
	}{{t.Unhealthy, "unhealthy"}, {t.Unknown, "unknown"}, {t.Draining, "draining"}, {t.Pending, "pending"}} {
		if c.n > 0 {
			rest = append(rest, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if len(rest) > 0 {
		text += " (" + strings.Join(rest, ", ") + ")"
	}
	return text
}

// PortName is the port of an endpoint: "80" or "all".
func PortName(port uint32) string {
	if port == model.AllPorts {
		return "all"
	}
	return strconv.FormatUint(uint64(port), 10)
}

// EndpointName is "TCP 203.0.113.10:80".
func EndpointName(k *weirv1.EndpointKey) string {
	return k.GetProtocol() + " " + net.JoinHostPort(k.GetVip(), PortName(k.GetPort()))
}

// HostPort is "10.3.1.11:8080" or "[fd00::1]:8080"; of a backend of all ports it is the address alone.
func HostPort(address string, port uint32) string {
	if port == model.AllPorts {
		return address
	}
	return net.JoinHostPort(address, strconv.FormatUint(uint64(port), 10))
}

// BackendState is what a line about a backend says of it.
func BackendState(b *weirv1.Backend) string {
	state := b.GetStatus().GetHealth()
	if reason := b.GetStatus().GetReason(); reason != "" {
		state += ": " + reason
	}
	if b.Weight != nil && b.GetWeight() == 0 {
		state += ", draining"
	}
	return state
}
