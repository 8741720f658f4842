package agentd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/agentd/healthcheck"
	"github.com/weirlb/weir/internal/agentd/overlay"
	"github.com/weirlb/weir/internal/agentd/snat"
	"github.com/weirlb/weir/internal/agentd/traffic"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wake"
	"github.com/weirlb/weir/internal/wire"
)

const (
	reportTimeout = 5 * time.Second
	// wholeEvery is the number of regular reports between two with the health of all backends. These repair what a manager
	// has lost.
	wholeEvery = 15
)

// reports sends the host's status and its backends' health to the manager: at once after a change, and every
// statusInterval. The next report repeats what an unanswered one had.
type reports struct {
	config   Config
	tables   *tables
	findings func() []healthcheck.Finding
	backlogs func() []*weirv1.BackendBacklog
	subflows func() (*weirv1.HostMultipath, error)
	ports    *snat.Ports
	traffic  *traffic.Meter
	wake     wake.Signal // sends a report at once

	mu            sync.Mutex
	stream        int                         // number of the stream: snapshots so far
	told          map[int]model.BackendHealth // by check: what the manager knows from this stream
	sessionReport session.Report              // of the last sweep
	ended         uint64                      // sessions, by all sweeps
	counted       standing                    // of the tables before the sweep
	counts        bool                        // the session report is not sent yet
	trouble       string                      // of the sweep
	swept         time.Time                   // when the last one ended
	floods        []*weirv1.VIPFlood          // by it
	refused       map[netip.Addr]bool         // VIPs at their limit of sessions
	snatRefused   map[netip.Addr]bool         // VIPs whose workloads were refused source NAT rows
	events        []*weirv1.MuxEvent          // not reported yet
	failure       string                      // of the last report
}

func newReports(config Config, tables *tables, ports *snat.Ports) *reports {
	return &reports{
		config: config, tables: tables, ports: ports, traffic: traffic.New(config.Log, time.Now()), wake: wake.New(), told: map[int]model.BackendHealth{},
		backlogs: func() []*weirv1.BackendBacklog { return nil },
		subflows: func() (*weirv1.HostMultipath, error) { return nil, nil },
	}
}

// restart forgets what was reported: the stream is a new one, perhaps of another manager.
func (r *reports) restart() {
	r.mu.Lock()
	r.stream++
	r.mu.Unlock()
	r.forget()
}

// forget reports the health of all backends again.
func (r *reports) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.told)
}

// repeat reports the health of the backends again: the manager may have dropped it when a backend was removed and added.
func (r *reports) repeat(backends []model.HostBackend) {
	type checked struct {
		endpoint model.EndpointKey
		backend  netip.AddrPort
	}
	changed := make(map[checked]bool, len(backends))
	for _, b := range backends {
		changed[checked{b.Endpoint, b.Backend}] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.told, func(_ int, h model.BackendHealth) bool { return changed[checked{h.Endpoint, h.Backend}] })
}

// sessions records the result of a sweep that began with the tables standing so.
func (r *reports) sessions(before standing, found session.Report, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessionReport, r.counted, r.counts, r.trouble = found, before, err == nil, ""
	r.ended += uint64(found.Ended)
	r.countFloods(found.VIPs, time.Now())
	r.sessionQuotaEvents(found.VIPs)
	r.snatQuotaEvents(found.SNAT.Refused)
	if err != nil {
		r.trouble = err.Error()
	}
}

func (r *reports) run(ctx context.Context) error {
	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	for regular := 1; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-ticker.C:
			r.tables.retry()
			if regular++; regular%wholeEvery == 0 {
				r.forget()
			}
		}
		r.send(ctx)
	}
}

// send sends one report, not before the first stream.
func (r *reports) send(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	request, news, stream := r.request()
	if stream == 0 {
		return
	}
	response, err := r.config.Manager.ReportHost(ctx, request)
	if err == nil {
		r.removeSentEvents(request.GetEvents())
		err = r.traffic.Answered(response)
		if request.GetGeneration() < uint64(r.tables.standing().running) { // as with a count of the one before
			r.wake.Set()
		}
	}
	r.note(news, stream, err)
}

// request is the report that is due, the health that is new in it, and the number of the stream.
func (r *reports) request() (request *weirv1.ReportHostRequest, news []healthcheck.Finding, stream int) {
	now := r.tables.standing()
	findings := r.findings()
	r.mu.Lock()
	defer r.mu.Unlock()
	request = &weirv1.ReportHostRequest{
		Name: r.config.Name, Generation: uint64(now.running), Rejection: now.rejection, Status: r.status(now),
		Events: slices.Clone(r.events),
	}
	if generation, right := r.countedOf(now); right {
		request.Generation, request.SessionsCounted = uint64(generation), true
		for _, s := range r.sessionReport.Backends {
			request.Sessions = append(request.Sessions, wire.BackendSessionsToProto(s))
		}
	}
	r.traffic.Add(request, time.Now())
	news = r.news(findings)
	for _, f := range news {
		request.Health = append(request.Health, wire.BackendHealthToProto(f.Health))
	}
	return request, news, r.stream
}

// countedOf is the generation that the count which is not sent yet is of, if there is one. A count from before a change
// does not cover the buckets that began to drain with it: it is of the generation that ran before, which the report then
// says, and the next one, at once, what runs. Or a host whose tables change all the time would count nothing.
func (r *reports) countedOf(now standing) (model.Generation, bool) {
	switch {
	case !r.counts:
		return 0, false
	case r.counted.changes == now.changes:
		return now.running, true
	}
	// now may be older than a count that has only just come.
	known := r.counted.running > 0 && r.counted.running <= now.running && r.counted.rejection == nil && now.rejection == nil
	return r.counted.running, known
}

// news are the findings that are not reported yet. Those of ended checks are dropped.
func (r *reports) news(findings []healthcheck.Finding) []healthcheck.Finding {
	var news []healthcheck.Finding
	alive := make(map[int]bool, len(findings))
	for _, f := range findings {
		alive[f.Check] = true
		if r.told[f.Check] != f.Health {
			news = append(news, f)
		}
	}
	maps.DeleteFunc(r.told, func(check int, _ model.BackendHealth) bool { return !alive[check] })
	return news
}

func (r *reports) status(now standing) *weirv1.HostStatus {
	status := &weirv1.HostStatus{
		Uplink: r.config.Uplink, Sessions: uint64(r.sessionReport.Live), Warnings: slices.Concat(now.warnings, r.ports.Warnings(), r.config.Networks.Warnings()),
	}
	for _, refused := range now.refused[:min(len(now.refused), steering.MaxRefusals)] {
		status.SteeringRefused = append(status.SteeringRefused, &weirv1.SteeringRefusal{Vip: refused.VIP.String(), Reason: refused.Reason})
	}
	status.SteeringRefusedMore = len(now.refused) > steering.MaxRefusals
	status.Snat, status.TellsRanges = r.ports.Usage()
	status.Backlogs, status.Floods = r.backlogs(), r.floods
	traffic, err := overlay.Report(r.config.Networks)
	if err != nil {
		status.Warnings = append(status.Warnings, fmt.Sprintf("counters of virtual networks' VIPs are missing: %v", err))
	}
	status.Networks = traffic
	status.Multipath, err = r.subflows()
	if err != nil {
		status.Warnings = append(status.Warnings, fmt.Sprintf("counters of Multipath TCP are missing: %v", err))
	}
	if r.trouble != "" {
		status.Warnings = append(status.Warnings, r.trouble)
	}
	verdicts, err := r.config.Datapath.Verdicts()
	if err != nil {
		status.Warnings = append(status.Warnings, fmt.Sprintf("counters are missing: %v", err))
	}
	counted, sessions, err := r.config.Networks.Counts()
	if err != nil {
		status.Warnings = append(status.Warnings, fmt.Sprintf("counters of virtual networks are missing: %v", err))
	}
	if verdicts = maps.Clone(verdicts); verdicts == nil {
		verdicts = map[string]model.Counter{}
	}
	for name, c := range counted {
		verdicts["network_"+name] = c
	}
	status.Sessions += uint64(sessions)
	status.Verdicts = wire.CountersToProto(verdicts)
	for _, t := range r.sessionReport.Tenants {
		status.TenantSessions = append(status.TenantSessions, &weirv1.TenantRows{Tenant: t.Tenant, Used: uint64(t.Confirmed), Limit: uint64(t.Limit)})
	}
	for _, t := range r.sessionReport.SNAT.Tenants {
		status.TenantSnat = append(status.TenantSnat, &weirv1.TenantRows{Tenant: t.Tenant, Used: uint64(t.Used), Limit: uint64(t.Limit)})
	}
	return status
}

// note records the outcome of a report. A refusal is logged once; lost connections are logged by the stream.
func (r *reports) note(news []healthcheck.Finding, stream int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		var refusal *rpc.Error
		level := slog.LevelDebug
		if errors.As(err, &refusal) && r.failure != err.Error() {
			level = slog.LevelWarn
		}
		r.failure = err.Error()
		r.config.Log.Log(context.Background(), level, "report not taken", "err", err)
		return
	}
	r.failure = ""
	if stream != r.stream {
		return
	}
	r.counts = false
	for _, f := range news {
		r.told[f.Check] = f.Health
	}
}
