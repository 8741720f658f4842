package resource

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/resource/live"
	"github.com/weirlb/weir/internal/resource/query"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/trust"
)

func eventOf(a *weirv1.AppliedVIP) eventlog.Event {
	return eventlog.Event{
		Kind: events.KindVIP, Object: a.GetName(), Reason: reason.OfChange[a.GetChange()], Message: fmt.Sprintf("%s with address %s", a.GetChange(), a.GetAddress()),
	}
}

// ListEvents lists events, the latest last.
func (m *Events) ListEvents(ctx context.Context, r *weirv1.ListEventsRequest) (*weirv1.ListEventsResponse, error) {
	f, err := query.NewEventFilter(r.GetKind(), r.GetObject(), r.GetTenant(), r.GetSeverity())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	page, err := query.NewPage(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	all, revision, err := m.Store.Events.List(ctx)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	found := query.Collect[*weirv1.Event](page)
	for _, e := range all {
		if f.Fits(ctx, e) && !found.Add(query.EventKey(e), func() *weirv1.Event { return query.EventToProto(e) }) {
			break
		}
	}
	return &weirv1.ListEventsResponse{Events: found.All, NextPageToken: found.Next, ResourceVersion: revision}, nil
}

// watchEvent is the kind of message that has an event.
const watchEvent = "event"

// WatchEvents streams events.
func (m *Events) WatchEvents(ctx context.Context, r *weirv1.WatchEventsRequest, stream *connect.ServerStream[weirv1.WatchEventsResponse]) error {
	return apierr.ToConnect(m.EachEvent(ctx, r, stream.Send))
}

// EachEvent sends events as they happen until ctx ends, the manager stops, or send fails.
func (m *Events) EachEvent(ctx context.Context, r *weirv1.WatchEventsRequest, send func(*weirv1.WatchEventsResponse) error) error {
	f, err := query.NewEventFilter(r.GetKind(), r.GetObject(), r.GetTenant(), r.GetSeverity())
	if err != nil {
		return err
	}
	end, err := m.Watches.Begin(trust.FromContext(ctx))
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-m.Stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	// Events come without a version to go on from: that comes with the bookmark behind them.
	sendAll := func(events []eventlog.Event, at uint64) error {
		for _, e := range events {
			if !f.Fits(ctx, e) {
				continue
			}
			if err := send(&weirv1.WatchEventsResponse{Type: watchEvent, Event: query.EventToProto(e)}); err != nil {
				return err
			}
		}
		return send(&weirv1.WatchEventsResponse{Type: live.Bookmark, ResourceVersion: at})
	}
	at := r.GetResourceVersion()
	if at == 0 {
		var all []eventlog.Event
		if all, at, err = m.Store.Events.List(ctx); err != nil {
			return err
		}
		if err := sendAll(all, at); err != nil {
			return err
		}
	}
	err = m.Store.Events.Watch(ctx, at, m.Bookmark, sendAll)
	select {
	case <-m.Stopping:
		return nil
	default:
	}
	if errors.Is(err, eventlog.ErrTooOld) {
		return apierr.VersionTooOld(at)
	}
	return err
}
