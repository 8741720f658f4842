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

// relays are the hosts that may relay packets to the mux, as in the table relay_hosts: by VIP in hardware and tunnel of a
// backend of it.
type relays struct {
	tables *bpf.Tables
	uses   map[relay]int // backends behind a tunnel
}

// relay is a host of a VIP; without VIP: of any.
type relay struct{ vip, tunnel netip.Addr }

func (r relay) row() bpf.MuxRelayHost {
	row := bpf.MuxRelayHost{Tunnel: bpf.ToAddress(r.tunnel)}
	if r.vip.IsValid() {
		row.Vip = bpf.ToAddress(r.vip)
	}
	return row
}

// count counts the backends of a VIP's endpoint, if the VIP is in hardware, and returns hosts whose number was 0 or is.
func (r *relays) count(vip netip.Addr, of *Live, by int) (changed []relay) {
	if of == nil || of.Settings.flags&bpf.MuxEndpointFlagENDPOINT_HARDWARE == 0 {
		return nil
	}
	for _, b := range of.Backends {
		for _, host := range []relay{{vip, b.Tunnel}, {tunnel: b.Tunnel}} {
			was := r.uses[host]
			r.uses[host] = was + by
			if was == 0 || was+by == 0 {
				changed = append(changed, host)
			}
		}
	}
	return changed
}

// replace has the table follow a change of a VIP's endpoint; either may be nil.
func (r *relays) replace(vip netip.Addr, old, next *Live) error {
	for _, host := range append(r.count(vip, next, 1), r.count(vip, old, -1)...) {
		if err := r.write(host); err != nil {
			return err
		}
	}
	return nil
}

func (r *relays) write(host relay) (err error) {
	if r.uses[host] > 0 {
		err = r.tables.RelayHosts.Put(host.row(), uint8(1))
		if errors.Is(err, unix.E2BIG) { // it is full: what that host relays is dropped
			return nil
		}
	} else {
		delete(r.uses, host)
		err = r.tables.RelayHosts.Delete(host.row())
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("write hosts that relay: %w", err)
	}
	return nil
}

// adopt brings an adopted table to what was counted.
func (r *relays) adopt() error {
	rows := make(map[bpf.MuxRelayHost]uint8, len(r.uses))
	for host := range r.uses {
		if len(rows) < int(r.tables.RelayHosts.MaxEntries()) {
			rows[host.row()] = 1
		}
	}
	if err := abi.WriteTable(r.tables.RelayHosts, rows); err != nil {
		return fmt.Errorf("write hosts that relay: %w", err)
	}
	return nil
}
