package session

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/backlog"
)

// Report is what a sweep found.
type Report struct {
	Live, Ended int
	// Doubtful ask the workloads of sessions that were reset, maybe by a forged segment.
	Doubtful Probes
	// Backends are those that have sessions or draining buckets, in order.
	Backends []model.BackendSessions
	// VIPs are those of the host's rules, in order.
	VIPs []VIPSessions
	// Tenants are those that are named, by name.
	Tenants []TenantSessions
	// SNAT is of workloads' own connections.
	SNAT SNATReport
	// SYNs are of the backends that had SYNs without an answer lately.
	SYNs []backlog.SYNs
}

// SetHashKey sets the pool's hash key. Without it a session report takes every session without a cookie
// for one in a draining bucket.
func (t *Tracker) SetHashKey(key flowhash.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.key = &key
}

// served is what a session tells of its rule.
type served struct {
	endpoint model.EndpointKey
	backend  netip.AddrPort
}

// counted is a rule and its sessions.
type counted struct {
	rule  model.HostBackend
	found model.BackendSessions
	syns  backlog.SYNs
}

// sessionReport counts sessions by rule.
type sessionReport struct {
	key   *flowhash.Key
	rules map[served]*counted
	// elsewhere are the rules whose draining buckets subflows of Multipath TCP may come by, by VIP: few, and mostly none.
	elsewhere map[netip.Addr][]*counted
}

func (t *Tracker) newSessionReport() sessionReport {
	t.mu.Lock()
	defer t.mu.Unlock()
	return newReport(t.key, t.rules())
}

func newReport(key *flowhash.Key, rules map[model.HostBackendKey]model.HostBackend) sessionReport {
	c := sessionReport{key: key, rules: make(map[served]*counted, len(rules)), elsewhere: map[netip.Addr][]*counted{}}
	for key, rule := range rules {
		counts := &counted{rule: rule, found: model.BackendSessions{Key: key}, syns: backlog.SYNs{Key: key}}
		c.rules[served{key.Endpoint, rule.Backend}] = counts
		if key.Endpoint.Protocol == model.TCP && len(rule.Homes) > 0 && len(rule.Draining) > 0 {
			c.elsewhere[key.Endpoint.VIP] = append(c.elsewhere[key.Endpoint.VIP], counts)
		}
	}
	return c
}

// countOf is the rule that a session came by, or nil: its backend is gone. A rule of all ports names none,
// and its backend may name none.
func (c sessionReport) countOf(s Session) *counted {
	one := model.EndpointKey{VIP: s.VIP.Addr(), Protocol: s.Protocol, Port: s.VIP.Port()}
	all := model.EndpointKey{VIP: one.VIP, Protocol: one.Protocol, Port: model.AllPorts}
	for _, by := range []served{{one, s.Backend}, {all, s.Backend}, {all, netip.AddrPortFrom(s.Backend.Addr(), 0)}} {
		if rule, ok := c.rules[by]; ok {
			return rule
		}
	}
	return nil
}

// add counts a live session. One that was reset needs nobody any more. One with a cookie, or whose other segments come by another
// host, does not need its bucket.
func (c sessionReport) add(s Session, cookie bool) {
	r := c.countOf(s)
	if r == nil || s.State == StateReset {
		return
	}
	r.found.Sessions++
	if cookie {
		return
	}
	r.found.WithoutCookie++
	if c.draining(r.rule, s) {
		r.found.Draining++
	}
}

// addElsewhere counts a subflow of Multipath TCP that another host has: its segments without a cookie come to backends here, by
// buckets that may be draining. It is one of the backend's sessions too, as what a report says of sessions includes these.
func (c sessionReport) addElsewhere(client, vip netip.AddrPort) {
	s := Session{Protocol: model.TCP, Client: client, VIP: vip}
	for _, r := range c.elsewhere[vip.Addr()] {
		if port := r.found.Key.Endpoint.Port; (port == vip.Port() || port == model.AllPorts) && c.draining(r.rule, s) {
			r.found.Sessions++
			r.found.WithoutCookie++
			r.found.Draining++
		}
	}
}

func (c sessionReport) draining(rule model.HostBackend, s Session) bool {
	if c.key == nil || rule.Buckets == 0 || len(rule.Draining) == 0 {
		return len(rule.Draining) != 0
	}
	flow := model.Flow{Protocol: s.Protocol, Source: s.Client, Destination: s.VIP}
	if rule.Affinity { // as bucket_hash() of bpf/mux/select.h
		flow.Source = netip.AddrPortFrom(s.Client.Addr(), 0)
		flow.Destination = netip.AddrPortFrom(s.VIP.Addr(), rule.Endpoint.Port)
	}
	_, found := slices.BinarySearch(rule.Draining, c.key.Sum(flow)&(rule.Buckets-1))
	return found
}

func (c sessionReport) backends() []model.BackendSessions {
	var all []model.BackendSessions
	for _, r := range c.rules {
		if r.found.Sessions != 0 || len(r.rule.Draining) != 0 {
			all = append(all, r.found)
		}
	}
	slices.SortFunc(all, func(a, b model.BackendSessions) int {
		return cmp.Or(a.Key.Endpoint.Compare(b.Key.Endpoint), a.Key.Tunnel.Compare(b.Key.Tunnel))
	})
	return all
}

// SNATTableUsage is what a tenant has of the table of source NAT that it is nearest to the end of, and may have.
type SNATTableUsage struct {
	Tenant      string
	Used, Limit int
}

// SNATRefusal is a VIP whose workloads' own connections were refused since the last sweep: there was no room for a row.
type SNATRefusal struct {
	VIP         netip.Addr
	Used, Limit int // of the tenant, as SNATTableUsage
}

// SNATReport is what a sweep found of workloads' own connections.
type SNATReport struct {
	Live, Ended int
	Doubtful    Probes           // as that of Report
	Tenants     []SNATTableUsage // those that are named, by name
	Refused     []SNATRefusal    // in order
}
