package nodesync

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sessioncount"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/wire"
)

// ReportMux takes the report of a mux: what it runs, its counters, and what it did by itself.
func (n *Service) ReportMux(ctx context.Context, r *weirv1.ReportMuxRequest) (*weirv1.ReportMuxResponse, error) {
	n.Replica.VerifyLeadership(ctx, r.GetEpoch())
	err := n.takeReport(model.RoleMux, r.GetName(), r.GetGeneration(), r.GetRejection(),
		&weirv1.NodeStatus{Mux: r.GetStatus()}, nodestatus.SessionCount{})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	n.Ports.AuditMux(r.GetName(), r.GetStatus().GetSnat())
	n.recordMuxEvents(r.GetName(), r.GetEvents())
	return &weirv1.ReportMuxResponse{}, nil
}

// AcknowledgeMux takes the generations that a mux runs, as it applies them, while its stream is open to this manager: a whole
// report for each would cost far more.
func (n *Service) AcknowledgeMux(
	ctx context.Context, stream *connect.ClientStream[weirv1.AcknowledgeMuxRequest],
) (*weirv1.AcknowledgeMuxResponse, error) {
	ended := make(chan error, 1)
	go func() { ended <- n.readAcknowledgements(stream) }()
	select {
	case err := <-ended:
		return &weirv1.AcknowledgeMuxResponse{}, err
	// Neither ends the wait for a message, but the end of the call does.
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-n.Stopping:
		return nil, errStops
	}
}

// readAcknowledgements reads a stream of acknowledgements until it ends.
func (n *Service) readAcknowledgements(stream *connect.ClientStream[weirv1.AcknowledgeMuxRequest]) error {
	for stream.Receive() {
		name, generation := stream.Msg().GetName(), model.Generation(stream.Msg().GetGeneration())
		n.unacked.answered(name, generation, 0, nil)
		if !n.Hub.AckMux(name, generation, model.Generation(stream.Msg().GetAhead())) {
			return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("mux %s follows another manager", name))
		}
		n.storeGeneration(name, generation)
	}
	return stream.Err()
}

// storeGeneration stores the generation that a mux runs, with the rest of its last report.
func (n *Service) storeGeneration(name string, generation model.Generation) {
	if raised, is := n.Reports.raise(name, n.Store.State().Status.At(name), generation, n.Now()); is {
		n.putStatus(name, raised, false)
	}
}

// ReportHost takes the report of a host: what it runs, its counters and sessions, and the health of its backends.
func (n *Service) ReportHost(ctx context.Context, r *weirv1.ReportHostRequest) (*weirv1.ReportHostResponse, error) {
	n.Replica.VerifyLeadership(ctx, r.GetEpoch())
	health, err := healthFromProto(r.GetHealth())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	counted, err := sessioncount.FromProto(r, n.Now())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	var stored nodestatus.SessionCount
	if r.GetSessionsCounted() {
		stored = counted.Stored()
	}
	err = n.takeReport(model.RoleHost, r.GetName(), r.GetGeneration(), r.GetRejection(),
		&weirv1.NodeStatus{Host: r.GetStatus()}, stored)
	if err == nil && r.GetSessionsCounted() {
		n.Sessions.Put(r.GetName(), counted)
	}
	if err == nil && len(health) > 0 {
		err = n.Store.Health.Update(ctx, r.GetName(), func(s *store.State) desired.HostHealth {
			return mergeHealth(s.Health.At(r.GetName()), health, nodeconfig.CheckedOn(s.State, r.GetName()))
		})
	}
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	n.recordHostEvents(r.GetName(), r.GetEvents())
	n.Ports.AuditHost(r.GetName(), r.GetStatus().GetSnat())
	return &weirv1.ReportHostResponse{Racks: n.Traffic.Take(r.GetName(), r)}, nil
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

// mergeHealth returns the health that a host reported, before and now, of those of its backends that are checked.
func mergeHealth(before desired.HostHealth, reported []model.BackendHealth, checked map[desired.HealthKey]bool) desired.HostHealth {
	all := desired.HostHealth{}
	for key, h := range before {
		if checked[key] {
			all[key] = h
		}
	}
	for _, h := range reported {
		if key := (desired.HealthKey{Endpoint: h.Endpoint, Backend: h.Backend}); checked[key] {
			all[key] = h
		}
	}
	return all
}

// takeReport keeps the report of a node. What is news the other managers are told at once, and the store gets it; of counters
// they are told every TellInterval, and the store has them as storeDue says.
func (n *Service) takeReport(
	role model.Role, name string, generation uint64, rejection *weirv1.Rejection,
	detail *weirv1.NodeStatus, counted nodestatus.SessionCount,
) error {
	state := n.Store.State()
	if state.Nodes.At(name).Role != role {
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("no %s %q is registered", role, name))
	}
	makePrintable(detail)
	reason := events.Printable(rejection.GetReason())
	n.unacked.answered(name, model.Generation(generation), model.Generation(rejection.GetGeneration()), errors.New(reason))
	now := n.Now()
	next := report{at: now, detail: detail, bare: withoutCounters(detail), told: now, stored: now, Status: nodestatus.Status{
		Seen: now, Generation: model.Generation(generation),
		Rejected: model.Generation(rejection.GetGeneration()), Reason: reason, SessionCount: counted,
	}}
	before, ok := n.Reports.here(name, state.Status.At(name))
	news := !ok || before.unstored || !before.equals(next)
	// Which generation a host runs is told by the gate.
	changed := news || role != model.RoleHost && before.Generation != next.Generation
	tell := changed || now.Sub(before.told) >= n.TellInterval
	if !tell {
		next.told = before.told
	}
	if !changed && !storeDue(n, state, role, name, before.stored, now, !counted.At.IsZero()) {
		next.stored, next.SessionCount = before.stored, before.SessionCount
		setReport(n, role, name, next, tell)
		return nil
	}
	if next.SessionCount.At.IsZero() { // the leader takes one that the store did not have for a new one
		if next.SessionCount = before.SessionCount; !ok {
			next.SessionCount = state.Status.At(name).SessionCount
		}
	}
	if next.Rejected > next.Generation && next.Rejected != state.Status.At(name).Rejected {
		n.Log.Warn("a node refused its tables", "node", name, "generation", next.Rejected, "reason", next.Reason)
	}
	setReport(n, role, name, next, tell)
	n.putStatus(name, next, news)
	return nil
}

// makePrintable takes out of a node's words what a terminal obeys: operators read them there.
func makePrintable(detail *weirv1.NodeStatus) {
	for _, warnings := range [][]string{detail.GetMux().GetWarnings(), detail.GetHost().GetWarnings(), detail.GetSwitch().GetWarnings()} {
		for i := range warnings {
			warnings[i] = events.Printable(warnings[i])
		}
	}
	for _, p := range detail.GetMux().GetPeers() {
		p.LastError = events.Printable(p.GetLastError())
	}
}

// setReport keeps a report, then acknowledges what it says that the node runs: who waits for that finds what the node says
// of it, such as VIPs that it does not steer.
func setReport(n *Service, role model.Role, name string, r report, tell bool) {
	n.Reports.setReport(name, r, tell)
	switch role {
	case model.RoleMux:
		n.acks.AckMux(name, r.Generation, r.Rejected)
	case model.RoleHost:
		n.acks.AckHost(name, max(r.Generation, r.Rejected))
	}
}

// putStatus writes a report to the store.
func (n *Service) putStatus(name string, r report, news bool) {
	n.Store.Status.Put(name, nodestatus.Write{
		Status: r.Status, Detail: r.forStore, News: news,
		Failed: func(err error) {
			n.Reports.setUnstored(name)
			n.Log.Debug("the store did not take what a node said", "node", name, "err", err)
		},
	})
}
