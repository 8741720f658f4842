package manager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sessioncount"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// storeEvery is how old what the store has of a node's counters may become.
const storeEvery = 10 * time.Second

// reports holds the newest report of each node that reports here. The store has the same but for
// counters, which it gets every storeEvery.
type reports struct {
	mu     *sync.Mutex
	newest map[string]report
}

type report struct {
	store.NodeStatus
	detail *weirv1.NodeStatus // mux and host only
	bare   *weirv1.NodeStatus // detail without counters
	stored time.Time
}

func newReports() reports { return reports{mu: &sync.Mutex{}, newest: map[string]report{}} }

// get returns the newest report of a node that is at least as new as stored.
func (r reports) get(node string, stored store.NodeStatus) (report, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	newest, ok := r.newest[node]
	return newest, ok && !newest.Seen.Before(stored.Seen)
}

// newestOf is when a node reported here last, and what, if that is at least as new as stored.
func (r reports) newestOf(node string, stored store.NodeStatus) (seen time.Time, detail *weirv1.NodeStatus, here bool) {
	newest, here := r.get(node, stored)
	return newest.Seen, newest.detail, here
}

func (r reports) setReport(node string, newest report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest[node] = newest
}

func (r reports) forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.newest, node)
}

// ReportMux takes what a mux runs.
func (m *Manager) ReportMux(ctx context.Context, r *weirv1.ReportMuxRequest) (*weirv1.ReportMuxResponse, error) {
	m.verifyLeadership(ctx, r.GetEpoch())
	err := m.report(model.RoleMux, r.GetName(), r.GetGeneration(), r.GetRejection(),
		&weirv1.NodeStatus{Mux: r.GetStatus()}, store.SessionCount{})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	m.allocator.AuditMux(r.GetName(), r.GetStatus().GetSnat())
	m.noteMuxDone(r.GetName(), r.GetEvents())
	return &weirv1.ReportMuxResponse{}, nil
}

// AcknowledgeMux takes which generations a mux runs, as it goes, while this manager has its stream. What else it would
// report it does report, now and then.
func (m *Manager) AcknowledgeMux(
	ctx context.Context, stream *connect.ClientStream[weirv1.AcknowledgeMuxRequest],
) (*weirv1.AcknowledgeMuxResponse, error) {
	ended := make(chan error, 1)
	go func() { ended <- m.acknowledged(stream) }()
	select {
	case err := <-ended:
		return &weirv1.AcknowledgeMuxResponse{}, err
	// Neither ends the wait for a message, but the end of the call does.
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-m.stopping:
		return nil, errStops
	}
}

// acknowledged takes what comes on the stream until it ends.
func (m *Manager) acknowledged(stream *connect.ClientStream[weirv1.AcknowledgeMuxRequest]) error {
	for stream.Receive() {
		name, generation := stream.Msg().GetName(), model.Generation(stream.Msg().GetGeneration())
		m.acks.answered(name, generation, 0, nil)
		if !m.hub.AckMux(name, generation, model.Generation(stream.Msg().GetAhead())) {
			return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("mux %s follows another manager", name))
		}
		m.noteRuns(name, generation)
	}
	return stream.Err()
}

// noteRuns has the store know that a mux runs a generation, with what it said last of all else.
func (m *Manager) noteRuns(name string, generation model.Generation) {
	next, ok := m.reports.get(name, m.store.State().Status.At(name))
	if !ok || generation <= next.Generation {
		return
	}
	next.Generation, next.Seen = generation, m.now()
	m.reports.setReport(name, next)
	m.putStatus(name, next, false)
}

// ReportHost takes what a host runs, and its backends' health.
func (m *Manager) ReportHost(ctx context.Context, r *weirv1.ReportHostRequest) (*weirv1.ReportHostResponse, error) {
	m.verifyLeadership(ctx, r.GetEpoch())
	health, err := healthFromProto(r.GetHealth())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	counted, err := sessioncount.FromProto(r, m.now())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	var stored store.SessionCount
	if r.GetSessionsCounted() {
		stored = counted.Stored()
	}
	err = m.report(model.RoleHost, r.GetName(), r.GetGeneration(), r.GetRejection(),
		&weirv1.NodeStatus{Host: r.GetStatus()}, stored)
	if err == nil && r.GetSessionsCounted() {
		m.sessions.Put(r.GetName(), counted)
	}
	if err == nil && len(health) > 0 {
		err = m.store.UpdateHealth(ctx, r.GetName(), func(s *store.State) desired.HostHealth {
			return merge(s.Health.At(r.GetName()), health, s.CheckedOn(r.GetName()))
		})
	}
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	m.noteHostDone(r.GetName(), r.GetEvents())
	m.allocator.AuditHost(r.GetName(), r.GetStatus().GetSnat())
	return &weirv1.ReportHostResponse{}, nil
}

func healthFromProto(list []*weirv1.BackendHealth) ([]model.BackendHealth, error) {
	health := make([]model.BackendHealth, 0, len(list))
	var errs []error
	for i, p := range list {
		h, err := wire.BackendHealthFromProto(p)
		for _, e := range model.FieldErrors(err) {
			errs = append(errs, &model.FieldError{Field: fmt.Sprintf("health[%d].%s", i, e.Field), Reason: e.Reason})
		}
		health = append(health, h)
	}
	return health, errors.Join(errs...)
}

// merge returns what a host said before and now of those of its backends that are checked.
func merge(before desired.HostHealth, said []model.BackendHealth, checked map[desired.HealthKey]bool) desired.HostHealth {
	all := desired.HostHealth{}
	for key, h := range before {
		if checked[key] {
			all[key] = h
		}
	}
	for _, h := range said {
		if key := (desired.HealthKey{Endpoint: h.Endpoint, Backend: h.Backend}); checked[key] {
			all[key] = h
		}
	}
	return all
}

// report takes what a node says of itself, and stores it if it is news.
func (m *Manager) report(
	role model.Role, name string, generation uint64, rejection *weirv1.Rejection,
	detail *weirv1.NodeStatus, counted store.SessionCount,
) error {
	state := m.store.State()
	if state.Nodes.At(name).Role != role {
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("no %s %q is registered", role, name))
	}
	m.acks.answered(name, model.Generation(generation), model.Generation(rejection.GetGeneration()), errors.New(rejection.GetReason()))
	now := m.now()
	if refused := model.Generation(rejection.GetGeneration()); role == model.RoleMux {
		m.hub.AckMux(name, model.Generation(generation), refused)
	} else {
		m.hub.AckHost(name, max(model.Generation(generation), refused))
	}
	next := report{detail: detail, bare: withoutCounters(detail), stored: now, NodeStatus: store.NodeStatus{
		Seen: now, Generation: model.Generation(generation),
		Rejected: model.Generation(rejection.GetGeneration()), Reason: rejection.GetReason(), SessionCount: counted,
	}}
	before, ok := m.reports.get(name, state.Status.At(name))
	news := !ok || !before.says(next)
	// Which generation a host runs is told by the gate.
	if on := role == model.RoleMux && before.Generation != next.Generation; !news && !on && now.Sub(before.stored) < storeEvery {
		next.stored = before.stored
		m.reports.setReport(name, next)
		return nil
	}
	if next.SessionCount.At.IsZero() {
		next.SessionCount = state.Status.At(name).SessionCount
	}
	if next.Rejected > next.Generation && next.Rejected != state.Status.At(name).Rejected {
		m.log.Warn("a node refused its tables", "node", name, "generation", next.Rejected, "reason", next.Reason)
	}
	m.reports.setReport(name, next)
	m.putStatus(name, next, news)
	return nil
}

// putStatus has the store take a report.
func (m *Manager) putStatus(name string, r report, news bool) {
	m.store.PutStatus(name, store.StatusWrite{
		Status: r.NodeStatus, Detail: r.forStore, News: news,
		Failed: func(err error) {
			m.reports.forget(name) // so that the next report is news
			m.log.Debug("the store did not take what a node said", "node", name, "err", err)
		},
	})
}

// detailMost is how many bytes the store has of what a node says besides counters of endpoints.
const detailMost = 64 << 10

// forStore is what the store has of the report: all of it, or, where that is much, what other managers decide on.
func (r report) forStore() ([]byte, error) {
	text, err := protojson.Marshal(r.detail)
	if err != nil || len(text) <= detailMost {
		return text, err
	}
	bare := proto.CloneOf(r.bare)
	if host := bare.GetHost(); host != nil {
		host.Snat = r.detail.GetHost().GetSnat()
	}
	return protojson.Marshal(bare)
}

// says says whether both reports are the same but for counters and what is run.
func (r report) says(other report) bool {
	return r.Rejected == other.Rejected && r.Reason == other.Reason && proto.Equal(r.bare, other.bare)
}

// withoutCounters is a copy of a report's detail, which nobody else knows yet.
func withoutCounters(detail *weirv1.NodeStatus) *weirv1.NodeStatus {
	if mux := detail.GetMux(); mux != nil {
		verdicts, endpoints, snat, flows := mux.Verdicts, mux.Endpoints, mux.Snat, mux.Flows
		mux.Verdicts, mux.Endpoints, mux.Snat, mux.Flows = nil, nil, nil, nil // many: they are not copied
		defer func() { mux.Verdicts, mux.Endpoints, mux.Snat, mux.Flows = verdicts, endpoints, snat, flows }()
	}
	if host := detail.GetHost(); host != nil {
		verdicts, sessions, snat, tenants, leaving := host.Verdicts, host.Sessions, host.Snat, host.TenantSessions, host.TenantSnat
		host.Verdicts, host.Sessions, host.Snat, host.TenantSessions, host.TenantSnat = nil, 0, nil, nil, nil
		defer func() {
			host.Verdicts, host.Sessions, host.Snat, host.TenantSessions, host.TenantSnat = verdicts, sessions, snat, tenants, leaving
		}()
	}
	return proto.CloneOf(detail)
}

// newestReport is the newest report of a node, to this manager or another one.
func (m *Manager) newestReport(s *store.State, node model.Node) (store.NodeStatus, *weirv1.NodeStatus) {
	said, detail := s.Status.At(node.Name), &weirv1.NodeStatus{}
	if newest, ok := m.reports.get(node.Name, said); ok {
		if node.Role == model.RoleMux {
			newest.Generation = said.Generation // it may report to another manager by now
		}
		return newest.NodeStatus, newest.detail
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(said.Detail, detail); err != nil && len(said.Detail) > 0 {
		m.log.Warn("can't read the status of a node", "node", node.Name, "err", err)
	}
	return said, detail
}

// view is the State that users are shown.
func (m *Manager) view() *store.State { return m.hub.WithProgress(m.store.State()) }

// forget drops what a node reported.
func (m *Manager) forget(node string) {
	m.reports.forget(node)
	m.sessions.Forget(node)
}
