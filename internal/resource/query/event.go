package query

import (
	"context"
	"fmt"
	"slices"

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
	if kind != "" && !slices.Contains(events.Kinds, kind) {
		return EventFilter{}, &model.FieldError{Field: "kind", Reason: fmt.Sprintf("must be one of %v, is %.64q", events.Kinds, kind)}
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

// EventKey is what lists of events are in order of, the latest last. An event that happens again between two pages moves to
// the end.
func EventKey(e eventlog.Event) string { return TimeKey(e.Last, e.Name()) }
