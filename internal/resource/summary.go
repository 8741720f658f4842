package resource

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/condition"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/answering"
	"github.com/weirlb/weir/internal/store"
)

// Bounds of what GetStatus tells of VIPs.
const (
	maxWarnings    = 100  // lines of warnings
	maxRejections  = 1000 // different reasons of muxes, of a tenant
	maxHostTunnels = 8    // tunnels of a host
	maxReason      = 200  // bytes of a reason that a node gave
	// summaryShare bounds the time spent on summaries: one is used for as many times what it took to make.
	summaryShare = 20
)

// warningLevel orders warnings of VIPs.
type warningLevel int

const (
	severe        warningLevel = iota // an endpoint takes no new connections, or only those that will fail
	refused                           // a mux does not run the VIP
	degraded                          // a backend is unhealthy
	warningLevels                     // how many there are
)

// summaries sums up the VIPs of the State, by tenant. Its cost is O(VIPs x backends), so a summary is shared by all
// callers while nothing that it tells of has changed, and else until its making is a small part of the time.
type summaries struct {
	mu    sync.Mutex
	of    *store.State
	basis condition.Basis
	until time.Time
	all   map[string]*tenantSummary
	made  int // how often one was made
}

// get returns the summary of the State, or of one shortly before; shown is the State as users are shown it. What it
// returns is not written again.
func (c *summaries) get(config *Config, s, shown *store.State, now func() time.Time) map[string]*tenantSummary {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := now()
	if c.all != nil && (c.of == s || began.Before(c.until)) {
		return c.all
	}
	basis := condition.BasisOf(shown, config.Reported)
	if c.of = s; c.all != nil && c.basis == basis {
		c.until = now().Add(summaryShare * now().Sub(began))
		return c.all
	}
	c.all, c.basis = summarize(shown, answering.New(config.Reported, shown)), basis
	c.made++
	ended := now()
	c.until = ended.Add(summaryShare * ended.Sub(began))
	return c.all
}

// tenantSummary sums up the VIPs of one tenant.
type tenantSummary struct {
	vips, endpoints, backends, unhealthy uint32

	hosts    map[string]*hostTally
	warnings [warningLevels][]string // at most maxWarnings of each
	totals   [warningLevels]int
	refusals map[string]*rejectedVIPs // by mux and reason
}

// rejectedVIPs are those that a mux does not run, for one reason.
type rejectedVIPs struct {
	first  string // VIP
	others int
}

func newTenantSummary() *tenantSummary {
	return &tenantSummary{hosts: map[string]*hostTally{}, refusals: map[string]*rejectedVIPs{}}
}

// summarize sums up all VIPs, by tenant.
func summarize(s *store.State, a *answering.Muxes) map[string]*tenantSummary {
	all := map[string]*tenantSummary{}
	muxes := refusing(s)
	for vip := range s.VIPs.Values() {
		t := all[vip.Tenant]
		if t == nil {
			t = newTenantSummary()
			all[vip.Tenant] = t
		}
		t.add(s, vip, muxes, a)
	}
	return all
}

func (t *tenantSummary) add(s *store.State, vip model.VIP, muxes []model.Node, a *answering.Muxes) {
	t.vips++
	for _, e := range vip.Endpoints {
		t.endpoints++
		for _, b := range e.Backends {
			t.backends++
			health := desired.HealthOf(&s.State, vip, e, b).Health
			if health == model.HealthUnhealthy {
				t.unhealthy++
			}
			if health == model.HealthPending { // hosts that there may never be are not counted one by one
				continue
			}
			h := t.hosts[b.Host]
			if h == nil {
				h = &hostTally{}
				t.hosts[b.Host] = h
			}
			h.count(b, health)
			h.addTunnel(b.TunnelAddress())
		}
	}
	for level, text := range vipWarnings(s, vip, a) {
		t.warn(level, text)
	}
	for _, rejection := range rejectionsOf(s, vip, muxes) {
		if r := t.refusals[rejection]; r != nil {
			r.others++
		} else if len(t.refusals) < maxRejections {
			t.refusals[rejection] = &rejectedVIPs{first: vip.Name}
		}
	}
}

func (t *tenantSummary) warn(level warningLevel, text string) {
	if t.totals[level]++; len(t.warnings[level]) < maxWarnings {
		t.warnings[level] = append(t.warnings[level], text)
	}
}

// backendTally counts backends by what becomes of new connections.
type backendTally struct{ total, serving, draining, unhealthy, unknown, pending uint32 }

func (t *backendTally) count(b model.Backend, health model.Health) {
	t.total++
	switch {
	case health == model.HealthPending:
		t.pending++
	case b.Weight == 0:
		t.draining++
	case health == model.HealthUnhealthy:
		t.unhealthy++
	case health == model.HealthUnknown:
		t.unknown++
	default:
		t.serving++
	}
}

// hostTally counts the backends of a host, and holds some of the tunnels to it.
type hostTally struct {
	backendTally

	tunnels []netip.Addr // at most maxHostTunnels
}

func (h *hostTally) addTunnel(a netip.Addr) {
	if len(h.tunnels) < maxHostTunnels && !slices.Contains(h.tunnels, a) {
		h.tunnels = append(h.tunnels, a)
	}
}

// vipWarnings are what is wrong with a VIP's backends, one line each.
func vipWarnings(s *store.State, vip model.VIP, a *answering.Muxes) iter.Seq2[warningLevel, string] {
	return func(yield func(warningLevel, string) bool) {
		if a.IsUnanswered(vip.Address) && !yield(severe, fmt.Sprintf("vip %s: no mux answers ARP and NDP for %s", vip.Name, vip.Address)) {
			return
		}
		if waits := desired.PendingHosts(&s.State, vip); len(waits) > 0 && !yield(degraded, fmt.Sprintf("vip %s: %s", vip.Name, strings.Join(waits, ", "))) {
			return
		}
		for _, e := range vip.Endpoints {
			name := fmt.Sprintf("vip %s, %s %s", vip.Name, e.Protocol, portName(e.Port))
			if text := endpointWarning(s, vip, e); text != "" && !yield(severe, name+": "+text) {
				return
			}
			for _, b := range e.Backends {
				reported := desired.HealthOf(&s.State, vip, e, b)
				if reported.Health == model.HealthUnhealthy && !yield(degraded, fmt.Sprintf("%s: backend %s on %s is %s", name, backendName(b), b.Host, backendState(b, reported.Reason))) {
					return
				}
			}
		}
	}
}

// endpointWarning says why an endpoint as a whole does not serve; empty: it does.
func endpointWarning(s *store.State, vip model.VIP, e model.Endpoint) string {
	var all backendTally
	for _, b := range e.Backends {
		health := desired.HealthOf(&s.State, vip, e, b).Health
		all.count(b, health)
	}
	why := "no backend is healthy"
	if all.unhealthy == 0 {
		why = "no backend was checked yet"
	}
	switch {
	case all.total == 0:
		return "has no backends: the muxes drop what arrives"
	case all.total == all.pending:
		return "no host of a backend has joined: new connections are dropped"
	case all.total == all.draining+all.pending:
		return "all backends drain: new connections are dropped"
	case all.serving == 0 && e.AllUnhealthy == model.Refuse:
		return why + ": new connections are dropped"
	case all.serving == 0:
		return why + ": connections go to all of them"
	}
	return ""
}

// portName is the port of an endpoint: "80" or "all".
func portName(port uint16) string {
	if port == model.AllPorts {
		return "all"
	}
	return fmt.Sprint(port)
}

// backendName is "10.3.1.11:8080"; of a backend of all ports it is the address alone.
func backendName(b model.Backend) string {
	if b.Port == model.AllPorts {
		return b.Address.String()
	}
	return b.AddrPort().String()
}

// backendState is what a line about an unhealthy backend says of it.
func backendState(b model.Backend, reason string) string {
	state := string(model.HealthUnhealthy)
	if reason != "" {
		state += ": " + strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
	}
	if b.Weight == 0 {
		state += ", draining"
	}
	return state
}

// addSummary writes what is to be told of the VIPs of the tenants that the caller may see, by host of those hosts alone.
func addSummary(response *weirv1.GetStatusResponse, all map[string]*tenantSummary, sees func(tenant string) bool, of map[string]bool) {
	hosts := map[string]*weirv1.HostBackends{}
	refusals := map[string]*rejectedVIPs{}
	var lines [warningLevels][]string
	for _, tenant := range slices.Sorted(maps.Keys(all)) {
		t := all[tenant]
		if !sees(tenant) {
			continue
		}
		response.Vips += t.vips
		response.Endpoints += t.endpoints
		response.Backends += t.backends
		response.BackendsUnhealthy += t.unhealthy
		for name, h := range t.hosts { // of 5 000 tenants most have few
			if of[name] {
				h.addTo(hosts, name)
			}
		}
		for level := range t.warnings {
			lines[level] = append(lines[level], t.warnings[level]...)
			response.VipWarningsTotal += uint32(t.totals[level])
		}
		for reason, r := range t.refusals {
			if sum := refusals[reason]; sum != nil {
				sum.others += 1 + r.others
			} else {
				refusals[reason] = &rejectedVIPs{r.first, r.others}
			}
		}
	}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		response.HostBackends = append(response.HostBackends, hosts[host])
	}
	for _, reason := range slices.Sorted(maps.Keys(refusals)) {
		lines[refused] = append(lines[refused], refusals[reason].line(reason))
		response.VipWarningsTotal++
	}
	told := slices.Concat(lines[:]...)
	response.VipWarnings = told[:min(len(told), maxWarnings)]
}

// addTo adds the host's backends of one tenant to those of others.
func (h *hostTally) addTo(hosts map[string]*weirv1.HostBackends, name string) {
	sum := hosts[name]
	if sum == nil {
		sum = &weirv1.HostBackends{Host: name}
		hosts[name] = sum
	}
	sum.Total += h.total
	sum.Serving += h.serving
	sum.Draining += h.draining
	sum.Unhealthy += h.unhealthy
	sum.Unknown += h.unknown
	for _, tunnel := range h.tunnels {
		if text := tunnel.String(); len(sum.Tunnels) < maxHostTunnels && !slices.Contains(sum.Tunnels, text) {
			sum.Tunnels = append(sum.Tunnels, text)
		}
	}
}

// line tells once why VIPs are refused: a full table keeps out all VIPs of a generation.
func (r rejectedVIPs) line(reason string) string {
	vips := "vip " + r.first
	if r.others > 0 {
		vips += fmt.Sprintf(" and %d others", r.others)
	}
	return vips + ": refused by " + reason
}
