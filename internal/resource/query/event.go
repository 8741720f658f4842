package query

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/eventlog"
)

// EventFilter chooses events.
type EventFilter struct{ kind, object, tenant, severity string }

// NewEventFilter makes a filter of what a request says.
func NewEventFilter(kind, object, tenant, severity string) (EventFilter, error) {
	kinds := []string{"", events.KindVIP, events.KindPool, events.KindPrefixList, events.KindNetwork, events.KindOverlay, string(model.RoleMux), string(model.RoleHost), string(model.RoleSwitch), events.KindManager}
	if !slices.Contains(kinds, kind) {
		return EventFilter{}, &model.FieldError{Field: "kind", Reason: fmt.Sprintf("must be one of %v, is %.64q", kinds[1:], kind)}
	}
	if severity != "" && severity != info && severity != warning {
		return EventFilter{}, &model.FieldError{Field: "severity", Reason: fmt.Sprintf("must be %s or %s, is %.64q", info, warning, severity)}
	}
	return EventFilter{kind, object, tenant, severity}, nil
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

// Fits says whether the caller asked for the event and may see it.
func (f EventFilter) Fits(ctx context.Context, e eventlog.Event) bool {
	return (f.kind == "" || f.kind == e.Kind) && (f.object == "" || f.object == e.Object) &&
		(f.tenant == "" || f.tenant == e.Tenant) && (f.severity == "" || f.severity == severity(e)) && authz.CanView(ctx, e.Tenant)
}

// EventToProto writes an event.
func EventToProto(e eventlog.Event) *weirv1.Event {
	return &weirv1.Event{
		Name: e.Name(), Kind: e.Kind, Object: e.Object, Tenant: e.Tenant, Severity: severity(e), Reason: e.Reason, Message: e.Message,
		Source: e.Source, Count: e.Count, FirstTime: timestamppb.New(e.First), LastTime: timestamppb.New(e.Last), ResourceVersion: e.Revision,
	}
}

// EventToken is where a page of events goes on: behind that one. One that happens again meanwhile moves to
// the end.
type EventToken struct {
	Last time.Time `json:"last"`
	Name string    `json:"name"`
}

func (t EventToken) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// ParseEventToken reads what String wrote; an empty text is the begin.
func ParseEventToken(s string) (t EventToken, err error) {
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil && s != "" {
		err = json.Unmarshal(text, &t)
	}
	if err != nil {
		return t, &model.FieldError{Field: "pageToken", Reason: fmt.Sprintf("must be the nextPageToken of the page before, is %.80q", s)}
	}
	return t, nil
}

// Before says whether the token is of e or of one behind it.
func (t EventToken) Before(e eventlog.Event) bool {
	return t == EventToken{} || cmp.Or(e.Last.Compare(t.Last), cmp.Compare(e.Name(), t.Name)) > 0
}
