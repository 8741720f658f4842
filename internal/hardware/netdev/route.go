package netdev

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/hardware"
)

// Unreachable implements hardware.Router. Routes are looked up by the destination alone: RouteWarning says where that is not
// all that the kernel goes by.
func (r *Reader) Unreachable(ctx context.Context, tunnels []hardware.Tunnel) (none []netip.Addr, err error) {
	for _, tunnel := range tunnels {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		routes, err := r.links.RouteGetWithOptions(tunnel.Address.AsSlice(), &vnl.RouteGetOptions{FIBMatch: tunnel.TIP})
		switch {
		case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), // unreachable, or none
			errors.Is(err, unix.EINVAL), errors.Is(err, unix.EACCES): // blackhole, prohibit
			none = append(none, tunnel.Address)
		case err != nil:
			return nil, fmt.Errorf("look up the route to %s: %w", tunnel.Address, err)
		case tunnel.TIP && !leadsTo(tunnel.Address, routes):
			none = append(none, tunnel.Address)
		}
	}
	return none, nil
}

// leadsTo says whether a route is one to the address alone that packets go by.
func leadsTo(a netip.Addr, routes []vnl.Route) bool {
	for _, route := range routes {
		if route.Dst == nil || route.Type != unix.RTN_UNICAST {
			continue
		}
		if ones, _ := route.Dst.Mask.Size(); ones == a.BitLen() {
			return true
		}
	}
	return false
}

// RouteWarning says whether rules of policy routing choose tables by more than the destination, as for VRFs; empty: none does.
func (r *Reader) RouteWarning() (string, error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		var rules []vnl.Rule
		var err error
		for range attempts {
			if rules, err = r.links.RuleList(family); !errors.Is(err, vnl.ErrDumpInterrupted) {
				break
			}
		}
		if err != nil {
			return "", fmt.Errorf("list the rules of policy routing: %w", err)
		}
		for _, rule := range rules {
			if selects(rule) {
				return fmt.Sprintf("rule %d of policy routing goes by more than the destination, or is for VRFs: whether tunnels have a route is "+
					"looked up without it, so the VIPs of this switch may be announced without a route, or withdrawn with one", rule.Priority), nil
			}
		}
	}
	return "", nil
}

// Warned are a driver's warnings, with that of RouteWarning.
func (r *Reader) Warned(warnings []string) ([]string, error) {
	routes, err := r.RouteWarning()
	if routes != "" {
		warnings = append(slices.Clone(warnings), routes)
	}
	return warnings, err
}

// selects says whether a rule goes by more than the destination. One without a table is for VRFs, or goes on elsewhere.
func selects(r vnl.Rule) bool {
	return r.Src != nil || r.IifName != "" || r.OifName != "" || r.Mark != 0 || r.Tos != 0 || r.TunID != 0 || r.IPProto != 0 ||
		r.Dport != nil || r.Sport != nil || r.UIDRange != nil || r.Invert || r.Table == 0
}
