package endpoint

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// relays are the hosts that may relay packets to the mux, as in the table relay_hosts: by the tunnels of the backends of VIPs
// in hardware.
type relays struct {
	tables *bpf.Tables
	uses   map[netip.Addr]int // backends behind a tunnel
}

// count counts the backends of an endpoint, if its VIP is in hardware, and returns tunnels whose number was 0 or is.
func (r *relays) count(of *Live, by int) (changed []netip.Addr) {
	if of == nil || of.Settings.flags&bpf.MuxEndpointFlagENDPOINT_HARDWARE == 0 {
		return nil
	}
	for _, b := range of.Backends {
		was := r.uses[b.Tunnel]
		r.uses[b.Tunnel] = was + by
		if was == 0 || was+by == 0 {
			changed = append(changed, b.Tunnel)
		}
	}
	return changed
}

// replace has the table follow a change of an endpoint; either may be nil.
func (r *relays) replace(old, next *Live) error {
	for _, tunnel := range append(r.count(next, 1), r.count(old, -1)...) {
		if err := r.write(tunnel); err != nil {
			return err
		}
	}
	return nil
}

func (r *relays) write(tunnel netip.Addr) (err error) {
	if r.uses[tunnel] > 0 {
		err = r.tables.RelayHosts.Put(bpf.ToAddress(tunnel), uint8(1))
		if errors.Is(err, unix.E2BIG) { // it is full: what that host relays is dropped
			return nil
		}
	} else {
		delete(r.uses, tunnel)
		err = r.tables.RelayHosts.Delete(bpf.ToAddress(tunnel))
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("write hosts that relay: %w", err)
	}
	return nil
}

// adopt brings an adopted table to what was counted.
func (r *relays) adopt() error {
	rows := make(map[bpf.MuxAddress]uint8, len(r.uses))
	for tunnel := range r.uses {
		if len(rows) < int(r.tables.RelayHosts.MaxEntries()) {
			rows[bpf.ToAddress(tunnel)] = 1
		}
	}
	if err := abi.WriteTable(r.tables.RelayHosts, rows); err != nil {
		return fmt.Errorf("write hosts that relay: %w", err)
	}
	return nil
}
