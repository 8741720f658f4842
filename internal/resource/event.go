package resource

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/query"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/trust"
)

func eventOf(a *weirv1.AppliedVIP) eventlog.Event {
	return eventlog.Event{
		Kind: events.KindVIP, Object: a.GetName(), Reason: reason.OfChange[a.GetChange()], Message: fmt.Sprintf("%s with address %s", a.GetChange(), a.GetAddress()),
	}
}

// eventFilter chooses events.
type eventFilter struct{ kind, object, tenant, severity string }

func newEventFilter(kind, object, tenant, severity string) (eventFilter, error) {
	kinds := []string{"", events.KindVIP, events.KindPool, events.KindPrefixList, events.KindNetwork, events.KindOverlay, string(model.RoleMux), string(model.RoleHost), string(model.RoleSwitch), events.KindManager}
	if !slices.Contains(kinds, kind) {
		return eventFilter{}, &model.FieldError{Field: "kind", Reason: fmt.Sprintf("must be one of %v, is %.64q", kinds[1:], kind)}
	}
	if severity != "" && severity != info && severity != warning {
		return eventFilter{}, &model.FieldError{Field: "severity", Reason: fmt.Sprintf("must be %s or %s, is %.64q", info, warning, severity)}
	}
	return eventFilter{kind, object, tenant, severity}, nil
}

// Severities of events.
const (
	info    = "info"
	warning = "warning"
)

func severity(e eventlog.Event) string {
	if e.Warning {
		return warning
	}
	return info
}

func (f eventFilter) fits(ctx context.Context, e eventlog.Event) bool {
	return (f.kind == "" || f.kind == e.Kind) && (f.object == "" || f.object == e.Object) &&
		(f.tenant == "" || f.tenant == e.Tenant) && (f.severity == "" || f.severity == severity(e)) && authz.CanView(ctx, e.Tenant)
}

func eventToProto(e eventlog.Event) *weirv1.Event {
	return &weirv1.Event{
		Name: e.Name(), Kind: e.Kind, Object: e.Object, Tenant: e.Tenant, Severity: severity(e), Reason: e.Reason, Message: e.Message,
		Source: e.Source, Count: e.Count, FirstTime: timestamppb.New(e.First), LastTime: timestamppb.New(e.Last), ResourceVersion: e.Revision,
	}
}

// eventToken is where a page of events goes on: behind that one. One that happens again meanwhile moves to
// the end.
type eventToken struct {
	Last time.Time `json:"last"`
	Name string    `json:"name"`
}

func (t eventToken) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func parseEventToken(s string) (t eventToken, err error) {
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil && s != "" {
		err = json.Unmarshal(text, &t)
	}
	if err != nil {
		return t, &model.FieldError{Field: "pageToken", Reason: fmt.Sprintf("must be the nextPageToken of the page before, is %.80q", s)}
	}
	return t, nil
}

// before says whether the token is of e or of one behind it.
func (t eventToken) before(e eventlog.Event) bool {
	return t == eventToken{} || cmp.Or(e.Last.Compare(t.Last), cmp.Compare(e.Name(), t.Name)) > 0
}

// ListEvents lists events, the latest last.
func (m *Events) ListEvents(ctx context.Context, r *weirv1.ListEventsRequest) (*weirv1.ListEventsResponse, error) {
	f, err := newEventFilter(r.GetKind(), r.GetObject(), r.GetTenant(), r.GetSeverity())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	token, err := parseEventToken(r.GetPageToken())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	all, revision, err := m.Store.Events.List(ctx)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	size := query.MaxPage
	if n := r.GetPageSize(); n > 0 {
		size = int(min(n, query.MaxPage))
	}
	response := &weirv1.ListEventsResponse{ResourceVersion: revision}
	var last eventlog.Event
	for _, e := range all {
		if !token.before(e) || !f.fits(ctx, e) {
			continue
		}
		if len(response.Events) == size {
			response.NextPageToken = eventToken{last.Last, last.Name()}.String()
			break
		}
		response.Events, last = append(response.Events, eventToProto(e)), e
	}
	return response, nil
}

// WatchEvents streams events.
func (m *Events) WatchEvents(ctx context.Context, r *weirv1.WatchEventsRequest, stream *connect.ServerStream[weirv1.WatchEventsResponse]) error {
	return apierr.ToConnect(m.EachEvent(ctx, r, stream.Send))
}

// EachEvent sends events as they happen until ctx ends, the manager stops, or send fails.
func (m *Events) EachEvent(ctx context.Context, r *weirv1.WatchEventsRequest, send func(*weirv1.WatchEventsResponse) error) error {
	f, err := newEventFilter(r.GetKind(), r.GetObject(), r.GetTenant(), r.GetSeverity())
	if err != nil {
		return err
	}
	end, err := m.Watches.begin(trust.FromContext(ctx))
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
			if !f.fits(ctx, e) {
				continue
			}
			if err := send(&weirv1.WatchEventsResponse{Type: watchEvent, Event: eventToProto(e)}); err != nil {
				return err
			}
		}
		return send(&weirv1.WatchEventsResponse{Type: watchBookmark, ResourceVersion: at})
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
