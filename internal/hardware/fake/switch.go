package fake

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/weirlb/weir/internal/hardware"
)

// Limits are the sizes of the switch's tables. Zero: what a Duet switch has (section 3.1).
type Limits struct {
	Hosts, ECMP, Tunnels, Members uint32
}

// Switch outlives the drivers that are opened on it.
type Switch struct {
	mu           sync.Mutex
	capabilities hardware.Capabilities
	ours         hardware.Inventory
	others       map[netip.Addr]bool // entries of other processes
	boots        int
	refusals     map[netip.Addr]*hardware.Refusal
	hung         chan struct{} // closed when it hangs no longer; nil: it does not hang
	programs     int
	ports        []hardware.Port
}

// New returns a switch with empty tables that can do all.
func New(limits Limits) *Switch {
	size := func(limit, otherwise uint32) uint32 {
		if limit == 0 {
			return otherwise
		}
		return limit
	}
	ecmp := size(limits.ECMP, 4096)
	return &Switch{
		capabilities: hardware.Capabilities{
			Driver: "fake", Encapsulations: []hardware.Encapsulation{hardware.IPinIP},
			Outer4: true, Outer6: true, Weights: true, TIPs: true, Resilient: true,
			MaxMembers: size(limits.Members, ecmp),
			Hosts:      hardware.Table{Size: size(limits.Hosts, 16384)},
			ECMP:       hardware.Table{Size: ecmp},
			Tunnels:    hardware.Table{Size: size(limits.Tunnels, 512)},
		},
		others:   map[netip.Addr]bool{},
		refusals: map[netip.Addr]*hardware.Refusal{},
		boots:    1,
	}
}

// SetCapabilities changes what the switch says that it can do; the use of its tables is counted by the switch.
func (s *Switch) SetCapabilities(change func(*hardware.Capabilities)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.capabilities)
}

// SetPorts says what ports the switch has.
func (s *Switch) SetPorts(ports ...hardware.Port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports = slices.Clone(ports)
}

// Refuse has the switch refuse the entries of a VIP whatever its tables hold; nil: no longer.
func (s *Switch) Refuse(vip netip.Addr, refusal *hardware.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refusals, vip)
	if refusal != nil {
		s.refusals[vip] = refusal
	}
}

// Hang has every call wait until its context ends; off lets those go on that wait.
func (s *Switch) Hang(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case on && s.hung == nil:
		s.hung = make(chan struct{})
	case !on && s.hung != nil:
		close(s.hung)
		s.hung = nil
	}
}

// RemoveByHand takes away the entry of a VIP without the driver.
func (s *Switch) RemoveByHand(vip netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ours.Delete(vip)
}

// PutByHand changes an entry without the driver.
func (s *Switch) PutByHand(e hardware.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ours.Put(e)
}

// PutForeign adds the entry of another process.
func (s *Switch) PutForeign(vip netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others[vip] = true
}

// HasForeign tells whether the entry of another process is there.
func (s *Switch) HasForeign(vip netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.others[vip]
}

// Reboot empties the tables.
func (s *Switch) Reboot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ours, s.others = hardware.Inventory{}, map[netip.Addr]bool{}
	s.boots++
}

// Programs is how often an entry was written that differs from the one before.
func (s *Switch) Programs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.programs
}

// Open returns a driver of the switch.
func (s *Switch) Open() *Driver { return &Driver{s: s} }

// enter waits while the switch hangs, and locks it.
func (s *Switch) enter(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("ask the switch: %w", err)
		}
		s.mu.Lock()
		hung := s.hung
		if hung == nil {
			return nil
		}
		s.mu.Unlock()
		select {
		case <-hung:
		case <-ctx.Done():
		}
	}
}

func (s *Switch) current() hardware.Capabilities {
	c := s.capabilities
	c.Hosts.Used = s.ours.Hosts() + uint32(len(s.others))
	c.ECMP.Used, c.Tunnels.Used = s.ours.ECMP(), s.ours.Tunnels()
	return c
}
