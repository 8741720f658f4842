package status

import (
	"fmt"

	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
)

// mostNetworkEvents bounds what one look tells of attachments: an overlay that goes takes all of them.
const mostNetworkEvents = 1000

// networkEvents are what attachments tell from one State to the next: their VIP hears whether they are in force, and the
// network which VIPs it has.
func networkEvents(last, s *store.State, delta store.Delta) []eventlog.Event {
	if !last.Networks.Wants() && !s.Networks.Wants() {
		return nil
	}
	vips := map[string]bool{}
	for name := range delta.VIPs {
		vips[name] = true
	}
	for name := range delta.Networks { // the overlay's change names all of them
		for vip := range s.Networks.Wanting(name) {
			vips[vip] = true
		}
	}
	var happened []eventlog.Event
	for name := range vips {
		if len(happened) >= mostNetworkEvents {
			break
		}
		happened = append(happened, attachmentEvents(last, s, name)...)
	}
	return happened
}

// attachmentEvents are those of one VIP.
func attachmentEvents(last, s *store.State, name string) (happened []eventlog.Event) {
	was, is := attachments(last, name), attachments(s, name)
	vip := s.VIPs.At(name)
	for a, state := range is {
		before, had := was[a]
		if state == before {
			continue
		}
		if had || state != network.InForce { // one that is new and in force is told by what created or updated the VIP
			happened = append(happened, eventlog.Event{
				Kind: events.KindVIP, Object: name, Tenant: vip.Tenant, Warning: state != network.InForce, Reason: string(state),
				Message: fmt.Sprintf("network %s, at %s: %s", a.Network, a.Address, state.Reason()),
			})
		}
	}
	for a, state := range is {
		if state == network.InForce && was[a] != network.InForce {
			happened = append(happened, ofNetwork(s, a, reason.Attached, "a VIP of tenant %s is at %s", vip.Tenant))
		}
	}
	for a, state := range was {
		if state == network.InForce && is[a] != network.InForce {
			happened = append(happened, ofNetwork(last, a, reason.Detached, "the VIP of tenant %s at %s is gone", last.VIPs.At(name).Tenant))
		}
	}
	return happened
}

// attachments are those of a VIP, and how they are.
func attachments(s *store.State, name string) map[model.Attachment]network.State {
	all := map[model.Attachment]network.State{}
	vip := s.VIPs.At(name)
	for _, a := range vip.Attachments {
		all[a] = s.Networks.StateOf(vip.Tenant, a)
	}
	return all
}

// ofNetwork is an event of a network. Its tenant may not know the VIP's name.
func ofNetwork(s *store.State, a model.Attachment, why, format, tenant string) eventlog.Event {
	n, _ := s.Networks.Get(a.Network)
	return eventlog.Event{Kind: events.KindNetwork, Object: n.Name, Tenant: n.Tenant, Reason: why, Message: fmt.Sprintf(format, tenant, a.Address)}
}
