package nat

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/overlay/quota"
	"github.com/weirlb/weir/internal/datapath/overlay/reset"
)

// NAT is the full NAT of a data plane.
type NAT struct {
	mu    *sync.Mutex
	table *Table
}

// NewNAT is that of the table, under the data plane's lock.
func NewNAT(mu *sync.Mutex, table *Table) *NAT { return &NAT{mu, table} }

// SetNATPrefixes says which NAT addresses the mux has, which nobody else announces; not valid: none of the family.
func (n *NAT) SetNATPrefixes(v4, v6 netip.Prefix) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.table.SetPrefixes(v4, v6)
}

// NATPrefixes are those that are set.
func (n *NAT) NATPrefixes() (v4, v6 netip.Prefix, err error) { return n.table.Prefixes() }

// SetNATBackends makes the backends of slots exactly those. Sessions keep theirs.
func (n *NAT) SetNATBackends(want map[Slot]Backend) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.table.SetBackends(want)
}

// SetNATHosts makes the hosts of clients exactly those.
func (n *NAT) SetNATHosts(want []Host) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.table.SetHosts(want)
}

// SetNATTenant sets how many sessions a tenant of networks has of its own and at most, and how many half-open ones. Of
// tenant 0 own is what all may borrow together.
func (n *NAT) SetNATTenant(number, own, most, halfOpen uint32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.table.open(); err != nil {
		return err
	}
	return n.table.quotas.Set(number, own, most, halfOpen)
}

// NATUsage is what a tenant has of the sessions; of tenant 0, what all have borrowed.
func (n *NAT) NATUsage(number uint32) (quota.Usage, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.table.open(); err != nil {
		return quota.Usage{}, err
	}
	return n.table.quotas.Usage(number), nil
}

// MaxNATSessions is how many sessions there may be at most.
func (n *NAT) MaxNATSessions() int {
	return int(n.table.tables.NATSessions.MaxEntries()) * Ways
}

// NATSessions are those that live. They are read while they are asked for, so until the data plane is closed.
func (n *NAT) NATSessions() (iter.Seq[Session], error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.table.open(); err != nil {
		return nil, err
	}
	return n.table.sessions.all(), nil
}

// Swept is what a sweep found and did.
type Swept struct {
	Open, HalfOpen, Over int // that go on
	Freed                int // whose quarantine was over
	Idle                 int // that were ended
}

// MaxResets bounds the sessions that a sweep ends.
const MaxResets = 10000

// SweepNAT frees sessions that are over, at a tick, and ends those that were idle for longer than their endpoint allows:
// these rest as if they were reset, and send is given the resets for both ends. Where its numbers are stale an end answers
// with a challenge ACK, by which the session lives on. Numbers that no session has any more are free afterwards.
func (n *NAT) SweepNAT(now uint32, send func(reset.Pair) error) (s Swept, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.table
	if err := t.open(); err != nil {
		return s, err
	}
	unused := t.unused()
	if len(unused) > 0 {
		if err := abi.Quiesce(); err != nil { // packets may make sessions with what was named before
			return s, err
		}
	}
	ends, err := t.ends()
	if err != nil {
		return s, err
	}
	tenant := func(of Session) uint32 { return ends.attachments[of.Attachment].Tenant }
	var failed error
	for of := range t.sessions.all() {
		if of.isFree(now) && t.sessions.free(&of) {
			t.quotas.Remove(tenant(of), of.counted)
			s.Freed++
			continue
		}
		delete(unused, of.Backend)
		idle, most := time.Duration(int32(now-of.Seen))*Tick, t.backends[of.Backend].IdleTimeout
		switch {
		case of.State == HalfOpen:
			s.HalfOpen++
		case of.State != Open:
			s.Over++
		case most != 0 && idle > most && s.Idle < MaxResets && t.sessions.noteReset(of, now):
			s.Idle++
			if r, ok := t.resets(ends, of); ok {
				if err := send(r); err != nil && failed == nil {
					failed = fmt.Errorf("reset the session of %s: %w", of.Client, err)
				}
			}
		default:
			s.Open++
		}
	}
	t.quotas.Recount(func(yield func(uint32, bool) bool) {
		for of := range t.sessions.all() {
			if !yield(tenant(of), of.counted) {
				return
			}
		}
	})
	return s, errors.Join(failed, t.forget(unused))
}

// unused are the numbers of backends that no slot names.
func (t *Table) unused() map[uint32]bool {
	unused := map[uint32]bool{}
	for number := range t.backends {
		unused[number] = true
	}
	for _, number := range t.numbers {
		delete(unused, number)
	}
	return unused
}

// forget frees numbers of backends.
func (t *Table) forget(numbers map[uint32]bool) error {
	for number := range numbers {
		if err := t.tables.NATBackends.Put(number, bpf.MuxNatBackend{}); err != nil {
			return err
		}
		t.tunnels.Add(t.backends[number].Address.Addr(), -1)
		delete(t.backends, number)
		t.ids.Put(number)
	}
	return nil
}
