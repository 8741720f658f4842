package mux

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/acl"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/datapath/mux/share"
	"github.com/weirlb/weir/internal/datapath/mux/snat"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overload"
)

// Names of what facets take and return.
type (
	Settings         = pool.Settings
	Encapsulation    = pool.Encapsulation
	Update           = endpoint.Update
	EndpointSettings = endpoint.Settings
	SYNState         = endpoint.SYNState
	SYNCounter       = endpoint.SYNCounter
	OfferedLoad      = endpoint.OfferedLoad
	FlowUsage        = flow.Usage
	TenantUsage      = flow.TenantUsage
	SNATStatus       = snat.Status
	SNATTunnel       = snat.Tunnel
)

// The kinds of encapsulation.
const (
	IPIP = pool.IPIP
	GUE  = pool.GUE
)

// Services are the endpoints of VIPs, their backends, and where frames for these go.
type Services struct {
	mu      *sync.Mutex
	table   *endpoint.Table
	members *pool.Members
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

// PrefixLists are the lists of sources that endpoints name.
type PrefixLists struct {
	mu    *sync.Mutex
	lists *acl.Lists
}

// PrefixList is what the tables have of a prefix list.
func (p *PrefixLists) PrefixList(name string) model.PrefixSet {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists.Prefixes(name)
}

// FreeSourceRows is how many rows lists can take beside those that are there.
func (p *PrefixLists) FreeSourceRows() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists.Room()
}

// Pools are what all endpoints share, and the muxes that do.
type Pools struct {
	mu      *sync.Mutex
	row     *pool.Table
	members *pool.Members
}

// SetSettings writes the pool's row. The program reads it field by field, so what differs between
// muxes or changes the choice of backends is to be set before the first endpoint.
func (p *Pools) SetSettings(to Settings) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.row.Set(to)
}

// Settings reads the live row; it is all zero before the first SetSettings.
func (p *Pools) Settings() (Settings, error) { return p.row.Settings() }

// SetGeneration notes which version of the desired state the tables hold.
func (p *Pools) SetGeneration(g model.Generation) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.row.SetGeneration(g)
}

// Generation is what SetGeneration noted last, by whichever process.
func (p *Pools) Generation() (model.Generation, error) { return p.row.Generation() }

// SetPoolMembers says which muxes the pool has, and which of them is this one.
func (p *Pools) SetPoolMembers(self string, all []model.PoolMember) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.members.Set(self, all)
}

// Flows are the flow table and its accounts.
type Flows struct {
	mu    *sync.Mutex
	table *flow.Table
}

// SweepFlows frees the cells of flows that expired, and tells how many. Packets would take such
// cells too, but until then they count for their VIP. It also says of VIPs whose they are.
func (f *Flows) SweepFlows() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table.Sweep()
}

// TenantUsage reads what tenants have of the flow table, by name.
func (f *Flows) TenantUsage() ([]TenantUsage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table.TenantUsages()
}

// Shares are the limits of VIPs, and what they lose of their packets under overload.
type Shares struct {
	mu        *sync.Mutex
	endpoints endpoint.Accounts
	table     *share.Table
}

// SetMuxes divides the limits of VIPs among so many muxes, of which each gets a like part of the traffic.
func (s *Shares) SetMuxes(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoints.SetMuxes(n)
}

// RefusedCounters counts the packets that rate limits or fair shares dropped, of each VIP that has limits or lost any.
func (s *Shares) RefusedCounters() (map[netip.Addr]model.Counter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoints.RefusedCounters()
}

// OfferedLoad counts what came for each VIP, and the workloads of each tenant.
func (s *Shares) OfferedLoad() (vips map[netip.Addr]OfferedLoad, tenants map[string]int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endpoints.OfferedLoad()
}

// SetShares sets the drop probabilities of VIPs and has their sources sampled, until it is called again or they have
// not been renewed for five seconds. No other VIP loses packets. Of a VIP with probability 0 the sources are sampled
// alone.
func (s *Shares) SetShares(cuts map[netip.Addr]overload.Cut) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Set(cuts)
}

// Sources estimates how many packets came from which prefixes of sources since the last call, for the VIPs
// that SetShares has sampled: of each VIP the largest, in order.
func (s *Shares) Sources() (map[netip.Addr][]overload.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Sources()
}

// SYNCookies are how the SYNs of endpoints are treated.
type SYNCookies struct {
	mu        *sync.Mutex
	endpoints endpoint.SYNs
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

// SNAT is the port ranges of workloads.
type SNAT struct {
	mu    *sync.Mutex
	table *snat.Table
}

// SNATCounters counts the answers sent to workloads that leave as each VIP, since it has source NAT.
func (s *SNAT) SNATCounters() (map[netip.Addr]model.Counter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Counters()
}

// SNATDigest sums up the ranges that the tables hold, for the manager to compare with what they should.
func (s *SNAT) SNATDigest() (ranges int, digest uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Digest()
}
