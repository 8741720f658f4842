// Package neighbor writes for which VIPs the program answers ARP and NDP, and until when.
package neighbor

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// Neighbors is the lease of a mux, and the VIPs that it is of.
type Neighbors struct {
	mu     sync.Mutex // and not the data plane's: the lease ends sooner than what that may be held for
	tables *bpf.Tables
}

// New is of these tables.
func New(tables *bpf.Tables) *Neighbors { return &Neighbors{tables: tables} }

// SetNeighbors makes the VIPs all that the program answers for.
func (n *Neighbors) SetNeighbors(vips []netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	wanted := make(map[bpf.MuxAddress]bool, len(vips))
	for _, vip := range vips {
		wanted[bpf.ToAddress(vip)] = true
	}
	live, err := n.read()
	if err != nil {
		return err
	}
	for address := range live { // what goes makes room
		if wanted[address] {
			continue
		}
		if err := n.tables.Neighbors.Delete(address); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("stop answering for VIP %s: %w", bpf.FromAddress(address), err)
		}
	}
	for address := range wanted {
		if live[address] {
			continue
		}
		if err := n.tables.Neighbors.Put(address, uint8(1)); err != nil {
			return fmt.Errorf("answer for VIP %s: %w", bpf.FromAddress(address), err)
		}
	}
	return nil
}

// Neighbors are the VIPs, of whichever process.
func (n *Neighbors) Neighbors() (vips []netip.Addr, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	live, err := n.read()
	for address := range live {
		vips = append(vips, bpf.FromAddress(address))
	}
	return vips, err
}

func (n *Neighbors) read() (map[bpf.MuxAddress]bool, error) {
	live := map[bpf.MuxAddress]bool{}
	var address bpf.MuxAddress
	var value uint8
	entries := n.tables.Neighbors.Iterate()
	for entries.Next(&address, &value) {
		live[address] = true
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("read the VIPs that are answered for: %w", err)
	}
	return live, nil
}

// SetNeighborLease sets until when the program answers, by CLOCK_BOOTTIME.
func (n *Neighbors) SetNeighborLease(until time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.tables.NeighborLease.Put(uint32(0), bpf.MuxNeighborLease{Until: uint64(max(until, 1))}); err != nil {
		return fmt.Errorf("set the lease of VIPs that are answered for: %w", err)
	}
	return nil
}
