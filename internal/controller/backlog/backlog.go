// Package backlog has muxes answer the SYNs of endpoints with cookies while hosts report that the backlog of a backend is
// full. Each manager decides by the newest reports of all hosts, and tells the muxes with a stream to it.
//
//	a host's report ──▶ is it of a backend of its own? ──▶ counted ──▶ in force, and holdTime longer
//	                    no: refused, and counted as such      └── for longer than maxEpisode: no more, until pauseTime of silence
//
// Invariants: a host changes only endpoints that it has a backend of; one that is unhealthy, takes no connections, or whose
// cookies are not automatic changes nothing; no report keeps cookies on for longer than maxEpisode and holdTime.
package backlog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/controller/reported"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	facts "github.com/weirlb/weir/internal/model/backlog"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

const (
	interval = time.Second
	// holdTime is how long cookies stay on after the last report.
	holdTime = 15 * time.Second
	// maxEpisode is for how long a backend's reports count without a pause of pauseTime: what lasts longer is no burst and no
	// flood, but a backend that does not work, and that a health check takes out.
	maxEpisode = 5 * time.Minute
	pauseTime  = time.Minute
	// repeatInterval is when muxes are told again: they forget what is older than a minute.
	repeatInterval = 20 * time.Second
	// maxEndpoints bounds those that are in force at a time; the longest stay.
	maxEndpoints = 256
)

// Controller decides for which endpoints muxes answer SYNs.
type Controller struct {
	Store   *store.Store
	Reports *reported.Source
	Publish func([]*weirv1.EndpointBacklog) // tells muxes, of all
	Refused interface{ Set(float64) }       // reports of backends that a host has not, at the last look
	Now     func() time.Time
	Log     *slog.Logger

	mu      sync.Mutex
	inForce []facts.Endpoint
}

// Run decides until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	watch := c.Watch()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			watch.Step(c.Store.State(), c.Now())
		}
	}
}

// Len is how many endpoints there are.
func (c *Controller) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.inForce)
}

// reporter is a backend as its host reports it.
type reporter struct {
	host string
	key  model.HostBackendKey
}

func (r reporter) compare(other reporter) int {
	return cmp.Or(r.key.Endpoint.Compare(other.key.Endpoint), cmp.Compare(r.host, other.host), r.key.Tunnel.Compare(other.key.Tunnel))
}

// episode is for how long a backend has been reported.
type episode struct {
	began, last time.Time
	counted     time.Time // when a report counted last
	evidence    string
}

// Watch follows what hosts report.
type Watch struct {
	*Controller

	of   map[reporter]*episode
	said *reported.Part[*weirv1.BackendBacklog]
	told time.Time
}

// Watch begins to follow what hosts report.
func (c *Controller) Watch() *Watch {
	return &Watch{Controller: c, of: map[reporter]*episode{}, said: reported.New(c.Reports, "backlogs", func(d *weirv1.NodeStatus) []*weirv1.BackendBacklog {
		return d.GetHost().GetBacklogs()
	})}
}

// Step looks at what hosts report, and tells muxes what is new, as of now.
func (w *Watch) Step(s *store.State, now time.Time) {
	refused := 0
	for node := range s.Nodes.Values() {
		if node.Role != model.RoleHost || !s.Streams.At(node.Name) {
			continue
		}
		said := w.said.Of(s, node.Name, now)
		for _, b := range said[:min(len(said), facts.MaxReported)] {
			if err := w.take(s, node.Name, b, now); err != nil {
				refused++
				w.Log.Debug("refuse a host's word of a backlog", "node", node.Name, "err", err)
			}
		}
	}
	w.Refused.Set(float64(refused))
	maps.DeleteFunc(w.of, func(_ reporter, e *episode) bool { return now.Sub(e.last) >= pauseTime })
	w.said.Forget(s)
	next := w.decide(now)
	w.mu.Lock()
	same := slices.Equal(next, w.inForce)
	w.inForce = next
	w.mu.Unlock()
	if same && (len(next) == 0 || now.Sub(w.told) < repeatInterval) {
		return
	}
	w.told = now
	w.Publish(wire.BacklogsToProto(next))
}

// take counts what a host reports of a backend, if it has that.
func (w *Watch) take(s *store.State, host string, b *weirv1.BackendBacklog, now time.Time) error {
	evidence, counts, err := admit(s, host, b)
	if err != nil {
		return err
	}
	at := reporter{host, evidence.key}
	e := w.of[at]
	if e == nil {
		if !counts {
			return nil
		}
		e = &episode{began: now}
		w.of[at] = e
	}
	e.last = now
	if counts && now.Sub(e.began) < maxEpisode {
		e.counted, e.evidence = now, evidence.text
	}
	return nil
}

// said is what a host reports of a backend, in the manager's words: a host has none in what tenants read.
type said struct {
	key  model.HostBackendKey
	text string
}

// admit says which backend of the host a report is of, and whether it is one by which SYNs are answered.
func admit(s *store.State, host string, b *weirv1.BackendBacklog) (of said, counts bool, err error) {
	key, err := wire.EndpointKeyFromProto(b.GetEndpoint())
	if err != nil {
		return of, false, err
	}
	vip, there := s.VIPAt(key.VIP)
	if !there {
		return of, false, fmt.Errorf("no VIP has the address %s", key.VIP)
	}
	for _, e := range vip.Endpoints {
		if desired.Key(vip, e) != key {
			continue
		}
		for _, backend := range e.Backends {
			if backend.Host != host || backend.TunnelAddress().String() != b.GetTunnel() {
				continue
			}
			of = said{model.HostBackendKey{Endpoint: key, Tunnel: backend.TunnelAddress()}, textOf(backend, b)}
			health := desired.HealthOf(&s.State, vip, e, backend).Health
			works := backend.Weight > 0 && health != model.HealthUnhealthy && health != model.HealthPending
			return of, works && e.WhenSYNCookies() == model.SYNCookiesAuto, nil
		}
	}
	return of, false, fmt.Errorf("it has no backend %s of %s", b.GetTunnel(), key)
}

func textOf(backend model.Backend, b *weirv1.BackendBacklog) string {
	text := fmt.Sprintf("backend %s on %s left %d SYNs without an answer", backend.AddrPort(), backend.Host, b.GetWaiting())
	if facts.Cause(b.GetCause()) == facts.AcceptQueue {
		text = fmt.Sprintf("%d connections wait to be accepted by backend %s on %s, whose backlog is %d", b.GetWaiting(), backend.AddrPort(), backend.Host, b.GetLimit())
	}
	return text
}

// decide are the endpoints whose SYNs are answered, in order.
func (w *Watch) decide(now time.Time) (all []facts.Endpoint) {
	type endpoint struct {
		since    time.Time
		evidence []string
	}
	of := map[model.EndpointKey]*endpoint{}
	for _, at := range slices.SortedFunc(maps.Keys(w.of), reporter.compare) {
		e := w.of[at]
		if e.counted.IsZero() || now.Sub(e.counted) >= holdTime {
			continue
		}
		to := of[at.key.Endpoint]
		if to == nil {
			to = &endpoint{since: e.began}
			of[at.key.Endpoint] = to
		}
		if e.began.Before(to.since) {
			to.since = e.began
		}
		to.evidence = append(to.evidence, e.evidence)
	}
	keys := slices.SortedFunc(maps.Keys(of), func(a, b model.EndpointKey) int {
		return cmp.Or(of[a].since.Compare(of[b].since), a.Compare(b))
	})
	for _, key := range keys[:min(len(keys), maxEndpoints)] {
		all = append(all, facts.Endpoint{Key: key, Evidence: evidenceOf(of[key].evidence)})
	}
	slices.SortFunc(all, func(a, b facts.Endpoint) int { return a.Key.Compare(b.Key) })
	return all
}

// evidenceOf is a line of a few backends.
func evidenceOf(texts []string) string {
	const most = 3
	if more := len(texts) - most; more > 0 {
		texts = append(slices.Clone(texts[:most]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}
