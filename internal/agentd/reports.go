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
	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

const (
	reportTimeout = 5 * time.Second
	// wholeEvery is how many regular reports lie between two that tell all health anew. It mends
	// what a manager forgot without the agent's noticing.
	wholeEvery = 15
)

// reports tells the manager what the host runs and how its backends are: at once when that
// changed, and every statusInterval. A report that was not answered is made up for by the next.
type reports struct {
	config   Config
	tables   *tables
	findings func() []finding
	ports    *ports
	wake     chan struct{} // holds at most one

	mu            sync.Mutex
	stream        int                         // number of the stream, counted by its snapshots
	told          map[int]model.BackendHealth // by check: what the manager knows from this stream
	sessionReport agent.SessionReport         // of the last sweep
	ended         uint64                      // sessions, by all sweeps
	counted       uint64                      // changes of the tables before the sweep
	counts        bool                        // the manager was not told the session report
	trouble       string                      // of the sweep
	refused       map[netip.Addr]bool         // VIPs that had all the sessions that they may have
	leaving       map[netip.Addr]bool         // VIPs whose workloads' own connections were refused
	events        []*weirv1.MuxEvent          // that the manager has not heard of yet
	failure       string                      // of the last report
}

func newReports(config Config, tables *tables, ports *ports) *reports {
	return &reports{config: config, tables: tables, ports: ports, wake: make(chan struct{}, 1), told: map[int]model.BackendHealth{}}
}

// trigger has a report sent without waiting for the next one's time.
func (r *reports) trigger() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// restart begins with a new stream, perhaps of another manager, which was told nothing yet.
func (r *reports) restart() {
	r.mu.Lock()
	r.stream++
	r.mu.Unlock()
	r.forget()
}

// forget has all health told again.
func (r *reports) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.told)
}

// repeat has the health of the backends told again: the manager may have forgotten it between
// removing a backend and adding it anew.
func (r *reports) repeat(backends []model.HostBackend) {
	changed := make(map[checkKey]bool, len(backends))
	for _, b := range backends {
		changed[checkKey{b.Endpoint, b.Backend}] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.told, func(_ int, h model.BackendHealth) bool { return changed[checkKey{h.Endpoint, h.Backend}] })
}

// sessions notes the result of a sweep that began after so many changes of the tables.
func (r *reports) sessions(changes uint64, found agent.SessionReport, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessionReport, r.counted, r.counts, r.trouble = found, changes, err == nil, ""
	r.ended += uint64(found.Ended)
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

// send makes one report. Before the first stream there is nobody to tell.
func (r *reports) send(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	request, news, stream := r.request()
	if stream == 0 {
		return
	}
	_, err := r.config.Manager.ReportHost(ctx, request)
	r.note(news, stream, err)
	if err == nil {
		r.removeSentEvents(request.GetEvents())
	}
}

// request is the report that is due, the news in it, and the stream that they are news to.
func (r *reports) request() (request *weirv1.ReportHostRequest, news []finding, stream int) {
	now := r.tables.standing()
	findings := r.findings()
	r.mu.Lock()
	defer r.mu.Unlock()
	request = &weirv1.ReportHostRequest{
		Name: r.config.Name, Generation: uint64(now.running), Rejection: now.rejection, Status: r.status(now),
		Events: slices.Clone(r.events),
	}
	// A count from before a change says nothing of the buckets that began to drain with it.
	if r.counts && r.counted == now.changes {
		request.SessionsCounted = true
		for _, s := range r.sessionReport.Backends {
			request.Sessions = append(request.Sessions, rpc.BackendSessionsToProto(s))
		}
	}
	news = r.news(findings)
	for _, f := range news {
		request.Health = append(request.Health, rpc.BackendHealthToProto(f.health))
	}
	return request, news, r.stream
}

// news are the findings that the manager was not told. Checks that ended are forgotten.
func (r *reports) news(findings []finding) []finding {
	var news []finding
	alive := make(map[int]bool, len(findings))
	for _, f := range findings {
		alive[f.check] = true
		if r.told[f.check] != f.health {
			news = append(news, f)
		}
	}
	maps.DeleteFunc(r.told, func(check int, _ model.BackendHealth) bool { return !alive[check] })
	return news
}

func (r *reports) status(now standing) *weirv1.HostStatus {
	status := &weirv1.HostStatus{
		Uplink: r.config.Uplink, Sessions: uint64(r.sessionReport.Live), Warnings: slices.Concat(now.warnings, r.ports.warnings()),
	}
	status.Snat, status.TellsRanges = r.ports.portUsage()
	if r.trouble != "" {
		status.Warnings = append(status.Warnings, r.trouble)
	}
	verdicts, err := r.config.Datapath.Verdicts()
	if err != nil {
		status.Warnings = append(status.Warnings, fmt.Sprintf("counters are missing: %v", err))
	}
	status.Verdicts = rpc.CountersToProto(verdicts)
	for _, t := range r.sessionReport.Tenants {
		status.TenantSessions = append(status.TenantSessions, &weirv1.TenantRows{Tenant: t.Tenant, Used: uint64(t.Confirmed), Limit: uint64(t.Limit)})
	}
	for _, t := range r.sessionReport.SNAT.Tenants {
		status.TenantSnat = append(status.TenantSnat, &weirv1.TenantRows{Tenant: t.Tenant, Used: uint64(t.Used), Limit: uint64(t.Limit)})
	}
	return status
}

// note keeps what an answered report told. A refusal is logged once; that the manager is away is
// what the stream logs.
func (r *reports) note(news []finding, stream int, err error) {
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
		r.told[f.check] = f.health
	}
}
