package main

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// sessions are those of all muxes.
func (w *world) sessions() (all netlab.Sessions, err error) {
	for _, n := range w.lab.Of(netlab.Mux) {
		one, err := w.lab.Sessions(n.Name)
		if err != nil {
			return all, err
		}
		all.BGPEstablished += one.BGPEstablished
		all.BGPDropped += one.BGPDropped
		all.BFDDown += one.BFDDown
		all.Streams += one.Streams
	}
	return all, nil
}

// changed is how often sessions began or ended since.
func (w *world) changed(since netlab.Sessions) (netlab.Sessions, error) {
	now, err := w.sessions()
	return netlab.Sessions{
		BGPEstablished: now.BGPEstablished - since.BGPEstablished, BGPDropped: now.BGPDropped - since.BGPDropped,
		BFDDown: now.BFDDown - since.BFDDown, Streams: now.Streams - since.Streams,
	}, err
}

// acted is the line in which a mux says that it answers an endpoint's SYNs.
var acted = regexp.MustCompile(`(?m)^time=(\S+) level=WARN msg="SYN cookies on: .* vip=(\S+)`)

// detected has each trial know when the muxes acted, by their logs.
func (w *world) detected(s *series) {
	for _, n := range w.lab.Of(netlab.Mux) {
		for _, line := range acted.FindAllStringSubmatch(w.lab.Log(n.Name, "weir-mux"), -1) {
			at, err := time.Parse(time.RFC3339Nano, line[1])
			if err != nil {
				continue
			}
			for i := range s.Trials {
				t := &s.Trials[i]
				its := slices.ContainsFunc(vipsOf(t.Victim), func(vip netip.Addr) bool { return vip.String() == line[2] })
				if its && at.After(t.Began) && at.Before(t.Ended) {
					t.Detect = append(t.Detect, float64(at.Sub(t.Began).Microseconds())/1000)
				}
			}
		}
	}
}

// routeLook is from look to look at the router's routes.
const routeLook = 20 * time.Millisecond

// watchRoutes looks when VIPs have no route any more, until what it returns is called, which tells when.
func (w *world) watchRoutes(vips []netip.Addr) (stop func() []time.Time) {
	done, ended := make(chan struct{}), make(chan []time.Time, 1)
	go func() {
		gone := map[netip.Addr]time.Time{}
		for {
			select {
			case <-done:
				ended <- slices.Collect(maps.Values(gone))
				return
			case <-time.After(routeLook):
			}
			for _, vip := range vips {
				if _, is := gone[vip]; !is && !w.routed(vip) {
					gone[vip] = time.Now()
				}
			}
		}
	}()
	return func() []time.Time {
		close(done)
		return <-ended
	}
}

// routed says whether the router has a way to a VIP; if it can't be asked, it counts as having one.
func (w *world) routed(vip netip.Addr) bool {
	router, err := w.lab.NS(string(netlab.Router))
	if err != nil {
		return true
	}
	to := &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(vip.BitLen(), vip.BitLen())}
	family := netlink.FAMILY_V4
	if vip.Is6() {
		family = netlink.FAMILY_V6
	}
	routes, err := router.Netlink().RouteListFiltered(family, &netlink.Route{Dst: to}, netlink.RT_FILTER_DST)
	return err != nil || len(routes) > 0
}

// backAgain bounds how long a VIP stays in a black hole behind a flood.
const backAgain = time.Minute

// back waits until all muxes announce a tenant's VIPs, and says when.
func (w *world) back(ctx context.Context, tenant int) (time.Time, error) {
	for _, vip := range vipsOf(tenant) {
		if err := w.lab.WaitRouted(ctx, backAgain, vip, len(w.lab.Of(netlab.Mux))); err != nil {
			return time.Time{}, err
		}
	}
	return time.Now(), nil
}
