package muxd

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/trust"
)

// routeOverrides are the routes of VIPs that an overload action withdraws, or diverts to a scrubber.
type routeOverrides map[netip.Addr]model.VIPRoute

// setRouteOverrides replaces the overrides. The routes change before the tables do, and if the tables
// are refused.
func (t *tables) setRouteOverrides(list []model.VIPRoute) {
	next := make(routeOverrides, len(list))
	for _, route := range list {
		next[route.VIP] = route
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if next.equal(t.overrides) {
		return
	}
	for vip, route := range next {
		if before, was := t.overrides[vip]; !was || !route.Equal(before) {
			t.log.Warn("a vip is not announced as usual", "vip", vip, "action", route.Action)
		}
	}
	for vip := range t.overrides {
		if _, is := next[vip]; !is {
			t.log.Info("a vip is announced as usual again", "vip", vip)
		}
	}
	t.overrides = next
	if err := next.save(t.config.RoutesFile); err != nil {
		t.log.Warn("can't keep which vips are not announced as usual, for the next start", "err", err)
	}
	t.announce()
}

func (d routeOverrides) equal(other routeOverrides) bool {
	if len(d) != len(other) {
		return false
	}
	for vip, route := range d {
		if there, has := other[vip]; !has || !route.Equal(there) {
			return false
		}
	}
	return true
}

// routes are what is announced of vips: those of usual, but for the VIPs of d.
func (d routeOverrides) routes(usual Routes, vips map[netip.Addr]bool) (routes []bgp.Route, warnings []string) {
	var plain []netip.Addr
	for vip := range vips {
		route, is := d[vip]
		if !is || !route.Withdrawn && len(usual.Aggregates) > 0 { // the aggregate goes on being announced beside it
			plain = append(plain, vip)
		}
		if is && !route.Withdrawn {
			routes = append(routes, bgp.Route{
				Prefix: netip.PrefixFrom(vip, vip.BitLen()), NextHop: route.NextHop, Communities: route.Communities,
			})
		}
	}
	slices.SortFunc(plain, netip.Addr.Compare)
	prefixes, _ := usual.prefixes(plain)
	for _, p := range prefixes {
		routes = append(routes, bgp.Plain(p))
	}
	slices.SortFunc(routes, func(a, b bgp.Route) int { return a.Prefix.Compare(b.Prefix) })
	for vip, route := range d {
		aggregate, is := usual.prefix(vip)
		if vips[vip] && route.Withdrawn && is && slices.Contains(prefixes, aggregate) {
			warnings = append(warnings, fmt.Sprintf("VIP %s is to be black-holed, but aggregate %s still brings its packets: give its pool a blackhole", vip, aggregate))
		}
	}
	slices.Sort(warnings)
	return routes, warnings
}

// loadRouteOverrides reads what save wrote, so that a restart announces the same routes; none if it can't.
func loadRouteOverrides(path string, log *slog.Logger) routeOverrides {
	d := routeOverrides{}
	if path == "" {
		return d
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return d
	}
	var list []model.VIPRoute
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		log.Warn("which vips are not announced as usual is lost: all are, until the manager is reached", "file", path, "err", err)
		return d
	}
	for _, route := range list {
		d[route.VIP] = route
	}
	return d
}

// save replaces the file.
func (d routeOverrides) save(path string) error {
	if path == "" {
		return nil
	}
	list := make([]model.VIPRoute, 0, len(d))
	for _, route := range d {
		list = append(list, route)
	}
	slices.SortFunc(list, func(a, b model.VIPRoute) int { return a.VIP.Compare(b.VIP) })
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return trust.WriteFile(path, append(text, '\n'))
}
