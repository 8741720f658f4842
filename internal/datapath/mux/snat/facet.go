package snat

import (
	"net/netip"
	"sync"

	"github.com/weirlb/weir/internal/model"
)

// Ranges are the port ranges of workloads.
type Ranges struct {
	mu    *sync.Mutex
	table *Table
}

// NewRanges are those of the table, under the data plane's lock.
func NewRanges(mu *sync.Mutex, table *Table) *Ranges { return &Ranges{mu, table} }

// SNATCounters counts the answers sent to workloads that leave as each VIP, since it has source NAT.
func (s *Ranges) SNATCounters() (map[netip.Addr]model.Counter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Counters()
}

// SNATDigest sums up the ranges that the tables hold, for the manager to compare with what they should.
func (s *Ranges) SNATDigest() (ranges int, digest uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.Digest()
}
