package endpoint

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/nat"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/model"
)

// Services are the endpoints of VIPs, their backends, and where frames for these go.
type Services struct {
	mu      *sync.Mutex
	table   *Table
	members *pool.Members
	nat     *nat.Table
}

// NewServices are those of the table, under the data plane's lock.
func NewServices(mu *sync.Mutex, table *Table, members *pool.Members, full *nat.Table) *Services {
	return &Services{mu, table, members, full}
}

// Update brings endpoints, and the ranges of workloads, to what they say. Packets see each as it was or
// as it will be. When the tables lack room for all of them nothing is changed. What is so already is not
// touched.
func (s *Services) Update(u Update) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Update(u)
}

// Apply is an Update of endpoints alone.
func (s *Services) Apply(upserts []model.MuxEndpoint, removed []model.EndpointKey) error {
	return s.Update(Update{Endpoints: upserts, Removed: removed})
}

// Replace is an Update by a snapshot without source NAT.
func (s *Services) Replace(all []model.MuxEndpoint) error {
	return s.Update(Update{Snapshot: true, Endpoints: all})
}

// Tunnels lists the outer destinations of all live backends and workloads, in order. The list is shared, and
// another one once they change: leave it as it is.
func (s *Services) Tunnels() []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Tunnels.List()
}

// SetNextHops says where frames for each tunnel address go. A tunnel that is missing or not
// resolved drops its packets.
func (s *Services) SetNextHops(byTunnel map[netip.Addr]model.NextHop) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	moved, err := s.table.Hops.Set(byTunnel)
	if err != nil {
		return err
	}
	if err := s.table.Point(moved); err != nil {
		return err
	}
	if err := s.table.SNAT.Point(moved); err != nil {
		return err
	}
	if err := s.nat.Point(moved); err != nil {
		return err
	}
	return s.members.Rewrite()
}

// EndpointCounters counts the packets forwarded for each live endpoint since it was made.
func (s *Services) EndpointCounters() (map[model.EndpointKey]model.Counter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counters := map[model.EndpointKey]model.Counter{}
	for key, live := range s.table.Live {
		counter, err := abi.Counter(s.table.Tables.EndpointCounts, live.Row.Id)
		if err != nil {
			return nil, fmt.Errorf("read counter of endpoint %s: %w", key, err)
		}
		counters[key] = counter
	}
	return counters, nil
}

// SYNCookies are how the SYNs of endpoints are treated.
type SYNCookies struct {
	mu        *sync.Mutex
	endpoints SYNs
}

// NewSYNCookies are those of the table, under the data plane's lock.
func NewSYNCookies(mu *sync.Mutex, table *Table) *SYNCookies {
	return &SYNCookies{mu, SYNs{Table: table}}
}

// SetSYNState changes how the SYNs of an endpoint with automatic SYN cookies are treated, until it is changed
// again or the endpoint goes. Without secrets no SYN is answered.
func (s *SYNCookies) SetSYNState(key model.EndpointKey, state SYNState) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoints.SetState(key, state)
}

// SYNStates are the states of all live endpoints with automatic SYN cookies.
func (s *SYNCookies) SYNStates() map[model.EndpointKey]SYNState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoints.States()
}

// SYNCounters counts the SYNs of those endpoints.
func (s *SYNCookies) SYNCounters() (map[model.EndpointKey]SYNCounter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoints.Counters()
}

// SetSYNSecrets takes over the secrets that are valid, the oldest first, and the time of day, which may
// have been set anew.
func (s *SYNCookies) SetSYNSecrets(secrets []model.SYNSecret) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoints.SetSecrets(secrets)
}
