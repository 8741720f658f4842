package events

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/trust"
)

// Kinds of things that events happen to; nodes have their role.
const (
	KindVIP        = "VIP"
	KindPool       = "AddressPool"
	KindPrefixList = "PrefixList"
	KindNetwork    = "VirtualNetwork"
	KindOverlay    = "Overlay"
	KindFabric     = "Fabric"
	KindManager    = "manager"
)

// Kinds are all of them, with those of nodes.
var Kinds = []string{
	KindVIP, KindPool, KindPrefixList, KindNetwork, KindOverlay, KindFabric,
	string(model.RoleMux), string(model.RoleHost), string(model.RoleSwitch), KindManager,
}

// Bounds of the queue of events.
const (
	backlog    = 4096
	batchSize  = 64                     // one transaction
	batchPause = 200 * time.Millisecond // between two, so that what repeats is folded
)

// Recorder writes events. They are recorded as well as can be: of more than the store takes, some are dropped.
type Recorder struct {
	source string // of events that name none
	store  *store.Store
	now    func() time.Time
	log    *slog.Logger
	queue  chan eventlog.Event
}

// New returns a recorder of the manager named source.
func New(source string, s *store.Store, now func() time.Time, log *slog.Logger) *Recorder {
	return &Recorder{source: source, store: s, now: now, log: log, queue: make(chan eventlog.Event, backlog)}
}

// RecordCall queues an event that a call caused, with the name of its caller.
func (r *Recorder) RecordCall(ctx context.Context, e eventlog.Event) {
	if by := trust.CallerName(ctx); by != "" {
		e.Message += " by " + by
	}
	if e.Kind == KindVIP && e.Tenant == "" {
		e.Tenant = r.store.State().VIPs.At(e.Object).Tenant
	}
	r.Record(e)
}

// Record queues an event.
func (r *Recorder) Record(e eventlog.Event) {
	e.Source = cmp.Or(e.Source, r.source)
	e.First, e.Last, e.Count = r.now(), r.now(), 1
	select {
	case r.queue <- e:
	default:
		r.log.Debug("too many events: left one out", "reason", e.Reason, "name", e.Name())
	}
}

// Run writes the events that are queued until ctx ends.
func (r *Recorder) Run(ctx context.Context) error {
	recorder := r.store.Events.NewRecorder()
	for {
		select {
		case <-ctx.Done():
			return nil
		case first := <-r.queue:
			batch := []eventlog.Event{first}
			for len(batch) < batchSize && len(r.queue) > 0 {
				batch = append(batch, <-r.queue)
			}
			if err := recorder.Record(ctx, r.now(), batch); err != nil && ctx.Err() == nil {
				r.log.Warn("events are lost", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(batchPause):
		}
	}
}
