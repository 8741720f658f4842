package nodesync

import (
	"errors"
	"fmt"
	"net/netip"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/wire"
)

// maxNodeEvents bounds the events that are taken of one report.
const maxNodeEvents = 64

// Why an event that a node reported is dropped.
var (
	errManyEvents    = fmt.Errorf("a report has more than %d events", maxNodeEvents)
	errUnknownReason = errors.New("nodes of this role may not report this reason")
	errUnknownVIP    = errors.New("it is about no VIP of this node")
)

// recordMuxEvents records what a mux did by itself about endpoints and VIPs.
func (n *Service) recordMuxEvents(mux string, reported []*weirv1.MuxEvent) {
	n.recordNodeEvents(model.RoleMux, mux, reported, muxEvent)
}

// recordHostEvents records what a host did by itself about VIPs that have a backend, or a workload with source NAT, on it.
func (n *Service) recordHostEvents(host string, reported []*weirv1.MuxEvent) {
	n.recordNodeEvents(model.RoleHost, host, reported, hostEvent)
}

// recordNodeEvents records the events of a report that translate makes events of; the rest is logged and counted.
func (n *Service) recordNodeEvents(
	role model.Role, node string, reported []*weirv1.MuxEvent,
	translate func(s *store.State, node string, e *weirv1.MuxEvent) (eventlog.Event, error),
) {
	state := n.Store.State()
	for i, e := range reported {
		event, err := eventlog.Event{}, errManyEvents
		if i < maxNodeEvents {
			event, err = translate(state, node, e)
		}
		if err != nil {
			n.metrics.dropped.WithLabelValues(string(role)).Inc()
			n.Log.Debug("drop an event of a node", "node", node, "reason", events.CutMessage(e.GetReason()), "err", err)
			continue
		}
		event.Source = node
		n.Events.Record(event)
	}
}

// muxEvent is the event that a mux reports, in the mux's words.
func muxEvent(s *store.State, _ string, e *weirv1.MuxEvent) (eventlog.Event, error) {
	if !reason.IsOfMux(e.GetReason()) {
		return eventlog.Event{}, errUnknownReason
	}
	address, subject, err := subjectOf(e)
	if err != nil {
		return eventlog.Event{}, err
	}
	vip, there := s.VIPAt(address)
	if !there {
		return eventlog.Event{}, errUnknownVIP
	}
	return eventlog.Event{
		Kind: events.KindVIP, Object: vip.Name, Tenant: vip.Tenant, Warning: e.GetWarning(), Reason: e.GetReason(),
		Message: subject + ": " + events.CutMessage(e.GetMessage()),
	}, nil
}

// hostEvent is the event that a host reports, in the words of its reason: a host has none in what tenants read.
func hostEvent(s *store.State, host string, e *weirv1.MuxEvent) (eventlog.Event, error) {
	known, ok := reason.OfHost[e.GetReason()]
	if !ok {
		return eventlog.Event{}, errUnknownReason
	}
	address, err := netip.ParseAddr(e.GetVip())
	if err != nil {
		return eventlog.Event{}, err
	}
	vip, there := s.VIPAt(address)
	if !there || !s.Serves(host, vip.Name) {
		return eventlog.Event{}, errUnknownVIP
	}
	return eventlog.Event{
		Kind: events.KindVIP, Object: vip.Name, Tenant: vip.Tenant, Warning: known.Warning, Reason: e.GetReason(),
		Message: address.String() + ": " + known.Message(e.GetUsed(), e.GetLimit()),
	}, nil
}

// subjectOf is what an event of a mux is about: an endpoint of a VIP, or the VIP.
func subjectOf(e *weirv1.MuxEvent) (vip netip.Addr, subject string, err error) {
	if e.GetEndpoint() == nil {
		vip, err = netip.ParseAddr(e.GetVip())
		return vip, vip.String(), err
	}
	key, err := wire.EndpointKeyFromProto(e.GetEndpoint())
	return key.VIP, key.String(), err
}
