package linux

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// routeMessage returns the header of a message about a route to a single address; without one, to any.
func routeMessage(v6 bool, to netip.Addr) *nl.RtMsg {
	m := &nl.RtMsg{RtMsg: unix.RtMsg{Family: family(v6)}}
	if to.IsValid() {
		m.Dst_len = uint8(to.BitLen())
	}
	return m
}

// metricOf is the metric of our routes, the lowest that a family has: they come before those that a routing daemon writes of
// what others announce. Without one the kernel gives IPv6 routes 1024, and FRR 20.
func metricOf(v6 bool) uint32 {
	if v6 {
		return 1
	}
	return 0
}

// daemons are protocols of routing daemons: their routes follow from what others announce.
var daemons = []byte{
	unix.RTPROT_ZEBRA, unix.RTPROT_BIRD, unix.RTPROT_BABEL, unix.RTPROT_OPENR, unix.RTPROT_BGP, unix.RTPROT_ISIS, unix.RTPROT_OSPF,
	unix.RTPROT_RIP, unix.RTPROT_EIGRP,
}

// isBehindOurs says whether a route of others may be there beside ours: it leads a VIP to other switches when ours is gone.
func (r route) isBehindOurs() bool {
	return r.table == unix.RT_TABLE_MAIN && slices.Contains(daemons, r.protocol) && r.metric > metricOf(r.to.Is6())
}

// putRoute adds the route of a VIP, or has the one that is there lead to another group, in one step.
func (k *kernel) putRoute(ctx context.Context, vip netip.Addr, group uint32, replace bool) error {
	flags := unix.NLM_F_CREATE | unix.NLM_F_ACK
	if replace {
		flags |= unix.NLM_F_REPLACE
	} else {
		flags |= unix.NLM_F_EXCL
	}
	r := k.request(unix.RTM_NEWROUTE, flags)
	m := routeMessage(vip.Is6(), vip)
	m.Table, m.Protocol, m.Type, m.Scope = unix.RT_TABLE_MAIN, protocol, unix.RTN_UNICAST, unix.RT_SCOPE_UNIVERSE
	r.AddData(m)
	r.AddData(nl.NewRtAttr(unix.RTA_DST, vip.AsSlice()))
	r.AddData(nl.NewRtAttr(rtaNextHopID, u32(group)))
	r.AddData(nl.NewRtAttr(unix.RTA_PRIORITY, u32(metricOf(vip.Is6()))))
	if _, err := execute(ctx, r, 0); err != nil {
		return fmt.Errorf("write the route to %s: %w", vip, err)
	}
	return nil
}

// deleteRoute deletes our route to a VIP. One that is not there is fine.
func (k *kernel) deleteRoute(ctx context.Context, vip netip.Addr) error {
	r := k.request(unix.RTM_DELROUTE, unix.NLM_F_ACK)
	m := routeMessage(vip.Is6(), vip)
	m.Table, m.Protocol, m.Scope = unix.RT_TABLE_MAIN, protocol, unix.RT_SCOPE_NOWHERE
	r.AddData(m)
	r.AddData(nl.NewRtAttr(unix.RTA_DST, vip.AsSlice()))
	if _, err := execute(ctx, r, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("delete the route to %s: %w", vip, err)
	}
	return nil
}

// routeTo returns the route that packets to an address take if it is one to the address alone, or nil.
func (k *kernel) routeTo(ctx context.Context, to netip.Addr) (*route, error) {
	r := k.request(unix.RTM_GETROUTE, 0)
	m := routeMessage(to.Is6(), to)
	m.Flags = unix.RTM_F_FIB_MATCH
	r.AddData(m)
	r.AddData(nl.NewRtAttr(unix.RTA_DST, to.AsSlice()))
	answers, err := execute(ctx, r, unix.RTM_NEWROUTE)
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ESRCH):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look up the route to %s: %w", to, err)
	}
	for _, answer := range answers {
		found, ok, err := parseRoute(answer)
		if err != nil {
			return nil, err
		}
		if ok && found.to == to {
			return &found, nil
		}
	}
	return nil, nil
}

// routes returns all of our routes.
func (k *kernel) routes(ctx context.Context) (all []route, err error) {
	for _, v6 := range []bool{false, true} {
		answers, err := dump(ctx, func() *nl.NetlinkRequest {
			r := k.request(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
			m := routeMessage(v6, netip.Addr{})
			m.Table, m.Protocol = unix.RT_TABLE_MAIN, protocol
			r.AddData(m)
			return r
		}, unix.RTM_NEWROUTE)
		if err != nil {
			return nil, fmt.Errorf("read routes: %w", err)
		}
		for _, answer := range answers {
			found, ok, err := parseRoute(answer)
			if err != nil {
				return nil, err
			}
			if ok && found.protocol == protocol && found.table == unix.RT_TABLE_MAIN && found.metric == metricOf(v6) {
				all = append(all, found)
			}
		}
	}
	return all, nil
}

// parseRoute reads a message about a route; false: it is not one to a single address.
func parseRoute(message []byte) (found route, ok bool, err error) {
	if len(message) < unix.SizeofRtMsg {
		return found, false, errors.New("a message about a route is too short")
	}
	header := nl.DeserializeRtMsg(message)
	attributes, err := nl.ParseRouteAttr(message[unix.SizeofRtMsg:])
	if err != nil {
		return found, false, fmt.Errorf("parse a message about a route: %w", err)
	}
	found.protocol, found.kind, found.table = header.Protocol, header.Type, uint32(header.Table)
	for _, a := range attributes {
		switch a.Attr.Type & attributeType {
		case unix.RTA_DST:
			found.to, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_TABLE:
			found.table = number(a.Value)
		case unix.RTA_PRIORITY:
			found.metric = number(a.Value)
		case rtaNextHopID:
			found.group = number(a.Value)
		}
	}
	return found, found.to.IsValid() && int(header.Dst_len) == found.to.BitLen(), nil
}
