package muxd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wake"
	"github.com/weirlb/weir/internal/wire"
)

const (
	reportInterval = 2 * time.Second
	reportTimeout  = 5 * time.Second
)

// reports sends the mux's status to the manager: at once after a change, and every reportInterval. Reports are
// complete, so a lost one needs no retry.
type reports struct {
	mux  *Mux
	wake wake.Signal // sends a report at once

	arrivals arrivals // of the goroutine of run

	mu     sync.Mutex
	events []*weirv1.MuxEvent // not reported yet
}

// maxEvents bounds the events that are not reported yet.
const maxEvents = 64

// addEvent adds an event and triggers a report.
func (r *reports) addEvent(e *weirv1.MuxEvent) {
	r.mu.Lock()
	r.events = append(r.events, e)
	r.events = r.events[max(0, len(r.events)-maxEvents):]
	r.mu.Unlock()
	r.wake.Set()
}

// removeSentEvents removes the events of an answered report.
func (r *reports) removeSentEvents(events []*weirv1.MuxEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = slices.DeleteFunc(r.events, func(e *weirv1.MuxEvent) bool { return slices.Contains(events, e) })
}

// pendingEvents are the events that are not reported yet.
func (r *reports) pendingEvents() []*weirv1.MuxEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

func newReports(m *Mux) *reports { return &reports{mux: m, wake: wake.New()} }

func (r *reports) run(ctx context.Context) error {
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-ticker.C:
		}
		if err := r.send(ctx); err != nil && ctx.Err() == nil {
			r.mux.config.Log.Debug("report to the manager", "err", err) // the stream logs lost connections
		}
	}
}

func (r *reports) send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	generation, _, rejected := r.mux.state.Generations()
	request := &weirv1.ReportMuxRequest{
		Name: r.mux.config.Name, Generation: uint64(generation), Status: r.mux.status(), Events: r.pendingEvents(),
	}
	if rejected != nil {
		request.Rejection = &weirv1.Rejection{Generation: uint64(rejected.Generation), Reason: rejected.Reason}
	}
	_, err := r.mux.config.Manager.ReportMux(ctx, request)
	if err == nil {
		r.removeSentEvents(request.Events)
	}
	return err
}

// warnings are for operators, one line each.
func (m *Mux) warnings() (lines []string) {
	if line := m.loads.Warning(); line != "" {
		lines = append(lines, line)
	}
	if m.config.Datapath.Mode() == string(mux.Generic) {
		lines = append(lines,
			fmt.Sprintf("XDP on %s is generic: expect a fraction of the speed of a driver's own", m.config.Interface))
	}
	if m.leases != nil {
		lines = append(lines, m.leases.Warnings()...)
	}
	return append(lines, m.state.Warnings()...)
}

func (m *Mux) status() *weirv1.MuxStatus {
	status := &weirv1.MuxStatus{
		XdpMode: m.config.Datapath.Mode(), Interface: m.config.Interface, Warnings: m.warnings(),
		GracefulRestart: durationpb.New(m.config.GracefulRestart),
		Pressures:       append(m.loads.Pressures(), m.floods.Pressures()...), Snat: m.state.SNAT(),
	}
	if m.leases != nil {
		for _, vip := range m.leases.Held() {
			status.Neighbors = append(status.Neighbors, vip.String())
		}
	}
	for _, p := range m.config.Speaker.Peers() {
		status.Peers = append(status.Peers, p.ToProto())
	}
	verdicts, err := m.config.Datapath.Verdicts()
	if err != nil {
		status.Warnings = append(status.Warnings, fmt.Sprintf("counters are missing: %v", err))
	}
	status.Verdicts = wire.CountersToProto(verdicts)
	if last := m.reports.arrivals.look(verdicts, time.Now()); !last.IsZero() {
		status.LastPacket = timestamppb.New(last)
	}
	tenants, err := m.config.Datapath.TenantUsage()
	if err != nil {
		status.Warnings = append(status.Warnings, fmt.Sprintf("what tenants have of flows is missing: %v", err))
	}
	for _, t := range tenants {
		status.Flows = append(status.Flows, &weirv1.TenantRows{
			Tenant: t.Tenant, Used: t.Flows.Trusted, Limit: uint64(t.Limit),
		})
	}
	if status.NatSessions, err = m.state.NATSessions(); err != nil {
		status.Warnings = append(status.Warnings, fmt.Sprintf("what tenants have of sessions of full NAT is missing: %v", err))
	}
	endpoints, err := m.config.Datapath.EndpointCounters()
	if err != nil {
		status.Warnings = append(status.Warnings, fmt.Sprintf("endpoints' counters are missing: %v", err))
	}
	for _, key := range slices.SortedFunc(maps.Keys(endpoints), model.EndpointKey.Compare) {
		c := endpoints[key]
		status.Endpoints = append(status.Endpoints, &weirv1.EndpointCounter{
			Endpoint: wire.EndpointKeyToProto(key), Packets: c.Packets, Bytes: c.Bytes,
		})
	}
	return status
}
