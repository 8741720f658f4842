package share

import (
	"net/netip"
	"sync"

	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overload"
)

// Shares are the limits of VIPs, and what they lose of their packets under overload.
type Shares struct {
	mu        *sync.Mutex
	endpoints endpoint.Accounts
	table     *Table
}

// NewShares are those of the table and its endpoints, under the data plane's lock.
func NewShares(mu *sync.Mutex, table *Table) *Shares {
	return &Shares{mu, endpoint.Accounts{Table: table.endpoints}, table}
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
func (s *Shares) OfferedLoad() (vips map[netip.Addr]endpoint.OfferedLoad, tenants map[string]int, err error) {
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
