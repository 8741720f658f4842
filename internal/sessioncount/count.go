// Package sessioncount holds the connections that hosts counted of their backends, as they reported them here.
package sessioncount

import (
	"fmt"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/wire"
)

// Counts holds what each host that reports here said last of its backends' connections.
type Counts struct {
	mu    *sync.Mutex
	hosts map[string]Count
}

// Count is a host's last report that counted connections. Backends that have none are left out.
type Count struct {
	At         time.Time
	Generation model.Generation // that the host ran
	Of         map[model.HostBackendKey]model.BackendSessions
}

// New makes a table of counts.
func New() Counts { return Counts{mu: &sync.Mutex{}, hosts: map[string]Count{}} }

// Stored is what the store shall have of it.
func (c Count) Stored() nodestatus.SessionCount {
	stored := nodestatus.SessionCount{At: c.At, Generation: c.Generation}
	for key, backend := range c.Of {
		if backend.Draining > 0 {
			stored.Draining = append(stored.Draining, key)
		}
	}
	return stored
}

// Put takes what a host counted.
func (s Counts) Put(host string, c Count) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hosts[host] = c
}

// Get is what a host counted last.
func (s Counts) Get(host string) (Count, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.hosts[host]
	return c, ok
}

// Forget drops what a host counted.
func (s Counts) Forget(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hosts, host)
}

// Of is what the host of backend b of e said of it; all 0 if nothing.
func (s Counts) Of(vip model.VIP, e model.Endpoint, b model.Backend) model.BackendSessions {
	c, _ := s.Get(b.Host)
	return c.Of[model.HostBackendKey{Endpoint: desired.Key(vip, e), Tunnel: b.TunnelAddress()}]
}

// FromProto reads the connections of a report that came at a time.
func FromProto(r *weirv1.ReportHostRequest, at time.Time) (Count, error) {
	c := Count{
		At: at, Generation: model.Generation(r.GetGeneration()),
		Of: make(map[model.HostBackendKey]model.BackendSessions, len(r.GetSessions())),
	}
	var errs model.FieldErrorList
	for i, p := range r.GetSessions() {
		s, err := wire.BackendSessionsFromProto(p)
		if err != nil {
			errs.Below(fmt.Sprintf("sessions[%d]", i), err)
		}
		c.Of[s.Key] = s
	}
	return c, errs.Err()
}
