package netlink

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	vnl "github.com/vishvananda/netlink"
)

// neighbor is an entry of the kernel's neighbour table.
type neighbor struct {
	mac   [6]byte
	state int // of NUD_*
}

// usable says whether the kernel would send by the entry now.
func (n neighbor) usable() bool {
	const valid = vnl.NUD_REACHABLE | vnl.NUD_STALE | vnl.NUD_DELAY | vnl.NUD_PROBE | vnl.NUD_PERMANENT
	return n.state&valid != 0 && n.mac != [6]byte{}
}

// idle says whether the kernel does nothing to confirm the entry.
func (n neighbor) idle() bool {
	const busy = vnl.NUD_REACHABLE | vnl.NUD_DELAY | vnl.NUD_PROBE | vnl.NUD_PERMANENT | vnl.NUD_INCOMPLETE
	return n.state&busy == 0
}

// neighbors is the part of the table that belongs to one interface.
type neighbors struct {
	requests *vnl.Handle
	index    int // of the interface
	entries  map[netip.Addr]neighbor
	asked    map[netip.Addr]time.Time // when the kernel was last asked to resolve it
}

func newNeighbors(requests *vnl.Handle, index int) *neighbors {
	return &neighbors{
		requests: requests, index: index,
		entries: map[netip.Addr]neighbor{}, asked: map[netip.Addr]time.Time{},
	}
}

// read reads the whole table.
func (n *neighbors) read() error {
	list, err := retry(func() ([]vnl.Neigh, error) { return n.requests.NeighList(n.index, vnl.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list the neighbours: %w", err)
	}
	clear(n.entries)
	for _, entry := range list {
		if addr, ok := netip.AddrFromSlice(entry.IP); ok {
			known := neighbor{state: entry.State}
			copy(known.mac[:], entry.HardwareAddr)
			n.entries[addr.Unmap()] = known
		}
	}
	return nil
}

// askAgain is the shortest time between two requests to resolve the same neighbour.
const askAgain = time.Second

// resolve has the kernel confirm addr as if a packet were about to be sent there, unless it is known
// to be fine.
func (n *neighbors) resolve(addr netip.Addr, now time.Time) error {
	if !n.entries[addr].idle() || now.Sub(n.asked[addr]) < askAgain {
		return nil
	}
	n.asked[addr] = now
	return n.requests.NeighSet(&vnl.Neigh{LinkIndex: n.index, IP: net.IP(addr.AsSlice()), Flags: vnl.NTF_USE})
}
