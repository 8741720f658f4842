package mux

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overload"
)

// shares are the VIPs whose sources are sampled, and the prefixes of sources with a drop probability of their own.
type shares struct {
	vips    map[netip.Addr]bool
	sources map[bpf.MuxShareKey]uint64
}

// dropped is a drop probability as the programs know it: so many packets of 2^32.
func dropped(part float64) uint64 {
	return uint64(math.Round(min(max(part, 0), 1) * (1 << 32)))
}

// shareLife is how long a drop probability holds that is not renewed.
const shareLife = 5 * time.Second

// SetShares sets the drop probabilities of VIPs and has their sources sampled, until it is called again or shareLife is
// over. No other VIP loses packets. Of a VIP with probability 0 the sources are sampled alone.
func (d *Datapath) SetShares(cuts map[netip.Addr]overload.Cut) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(cuts)+len(d.shares.vips) == 0 {
		return nil
	}
	if err := errors.Join(d.openLimits(), d.openEndpointIndex(), d.writeSourceShares(cuts)); err != nil {
		return err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	vips, until := map[netip.Addr]bool{}, uint64(now.Nano()+shareLife.Nanoseconds())
	for vip, cut := range cuts {
		if live := d.vips.live[vip]; live != nil {
			vips[vip] = true
			row := &d.limits.rows[live.row.Vip]
			atomic.StoreUint64(&row.Drop, dropped(cut.Others))
			atomic.StoreUint64(&row.Until, until)
		}
	}
	d.shares.vips = vips
	return d.flagShares()
}

// flagShares sets ENDPOINT_FAIR_SHARE in the rows of these VIPs' endpoints, and clears it in others'.
func (d *Datapath) flagShares() error {
	flag := func(flags bpf.MuxEndpointFlag, vip netip.Addr) bpf.MuxEndpointFlag {
		if d.shares.vips[vip] {
			return flags | bpf.MuxEndpointFlagENDPOINT_FAIR_SHARE
		}
		return flags &^ bpf.MuxEndpointFlagENDPOINT_FAIR_SHARE
	}
	for key, live := range d.live {
		flags := flag(live.row.Flags, key.VIP)
		if flags == live.row.Flags {
			continue
		}
		live.row.Flags = flags
		if err := d.tables.Endpoints.Put(bpf.ToKey(key), live.row); err != nil {
			return fmt.Errorf("write row of endpoints: %w", err)
		}
		d.index.put(bpf.ToKey(key), live.row)
	}
	for vip := range d.snat.vips {
		live := d.vips.live[vip]
		row := live.row
		row.Flags = flag(row.Flags, vip)
		if err := d.writeVIP(vip, live, row); err != nil {
			return err
		}
	}
	return nil
}

// writeSourceShares makes the table source_shares what cuts say of sources.
func (d *Datapath) writeSourceShares(cuts map[netip.Addr]overload.Cut) error {
	next := map[bpf.MuxShareKey]uint64{}
	for vip, cut := range cuts {
		live := d.vips.live[vip]
		if live == nil {
			continue
		}
		for prefix, part := range cut.Sources {
			if len(next) < int(d.tables.SourceShares.MaxEntries()) {
				next[shareKey(live.row.Vip, prefix)] = dropped(part)
			}
		}
	}
	for key := range d.shares.sources {
		if _, stays := next[key]; stays {
			continue
		}
		if err := d.tables.SourceShares.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete row of source_shares: %w", err)
		}
		delete(d.shares.sources, key)
	}
	if d.shares.sources == nil {
		d.shares.sources = map[bpf.MuxShareKey]uint64{}
	}
	for key, drop := range next {
		if was, there := d.shares.sources[key]; there && was == drop {
			continue
		}
		if err := d.tables.SourceShares.Put(key, drop); err != nil {
			return fmt.Errorf("write row of source_shares: %w", err)
		}
		d.shares.sources[key] = drop
	}
	return nil
}

// Lengths of the prefixes of sources that are told apart.
const (
	sharePrefix4 = int(bpf.MuxShareLayoutSHARE_PREFIX_V4)
	sharePrefix6 = int(bpf.MuxShareLayoutSHARE_PREFIX_V6)
	shareV4      = uint64(bpf.MuxShareLayoutSHARE_V4) << 56
)

func shareKey(vip uint32, prefix netip.Prefix) bpf.MuxShareKey {
	words := abi.Words(prefix.Addr())
	if prefix.Addr().Is4() {
		return bpf.MuxShareKey{Vip: vip, Prefix: uint64(words[3]) | shareV4}
	}
	return bpf.MuxShareKey{Vip: vip, Prefix: uint64(words[0]) | uint64(words[1])<<32}
}

// prefixOf is what shareKey was made of.
func prefixOf(key bpf.MuxShareKey) netip.Prefix {
	if key.Prefix>>56 == shareV4>>56 {
		words := abi.Words(netip.AddrFrom4([4]byte{}))
		words[3] = uint32(key.Prefix)
		return netip.PrefixFrom(abi.Address(words), sharePrefix4)
	}
	words := [4]uint32{uint32(key.Prefix), uint32(key.Prefix >> 32)}
	if words == [4]uint32{} { // abi has no address of this
		return netip.PrefixFrom(netip.IPv6Unspecified(), sharePrefix6)
	}
	return netip.PrefixFrom(abi.Address(words), sharePrefix6)
}

// adoptShares discards the drop probabilities that the previous process set.
func (d *Datapath) adoptShares() error {
	for key, live := range d.live {
		if err := d.unshare(key, &live.row); err != nil { // adoptEndpointIndex writes it where packets read
			return err
		}
	}
	for vip, live := range d.vips.live {
		if err := d.unshare(vipKey(vip), &live.row); err != nil {
			return err
		}
	}
	var key bpf.MuxShareKey
	var drop uint64
	var stale []bpf.MuxShareKey
	entries := d.tables.SourceShares.Iterate()
	for entries.Next(&key, &drop) {
		stale = append(stale, key)
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read table source_shares: %w", err)
	}
	for _, key := range stale {
		if err := d.tables.SourceShares.Delete(key); err != nil {
			return fmt.Errorf("delete row of source_shares: %w", err)
		}
	}
	return nil
}

func (d *Datapath) unshare(key model.EndpointKey, row *bpf.MuxEndpoint) error {
	if row.Flags&bpf.MuxEndpointFlagENDPOINT_FAIR_SHARE == 0 {
		return nil
	}
	row.Flags &^= bpf.MuxEndpointFlagENDPOINT_FAIR_SHARE
	if err := d.tables.Endpoints.Put(bpf.ToKey(key), *row); err != nil {
		return fmt.Errorf("write row of endpoints: %w", err)
	}
	return nil
}
