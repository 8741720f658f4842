package share

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
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/limit"
	"github.com/weirlb/weir/internal/datapath/mux/snat"
	"github.com/weirlb/weir/internal/datapath/mux/viprow"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overload"
)

// Table are the VIPs whose sources are sampled, and the prefixes of sources with a drop probability of their own. The
// caller holds the data plane's lock.
type Table struct {
	tables    *bpf.Tables
	policers  *limit.Policers
	rows      *viprow.Table
	endpoints *endpoint.Table
	snat      *snat.Table

	vips    map[netip.Addr]bool
	sources map[bpf.MuxShareKey]uint64
}

// New samples none yet.
func New(e *endpoint.Table) *Table {
	return &Table{tables: e.Tables, policers: e.Policers, rows: e.Rows, endpoints: e, snat: e.SNAT}
}

// dropped is a drop probability as the programs know it: so many packets of 2^32.
func dropped(part float64) uint64 {
	return uint64(math.Round(min(max(part, 0), 1) * (1 << 32)))
}

// shareLife is how long a drop probability holds that is not renewed.
const shareLife = 5 * time.Second

// Set sets the drop probabilities of VIPs and has their sources sampled, until it is called again or shareLife is
// over. No other VIP loses packets. Of a VIP with probability 0 the sources are sampled alone.
func (s *Table) Set(cuts map[netip.Addr]overload.Cut) error {
	if len(cuts)+len(s.vips) == 0 {
		return nil
	}
	if err := errors.Join(s.policers.Open(), s.rows.Index.Open(), s.writeSourceShares(cuts)); err != nil {
		return err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	vips, until := map[netip.Addr]bool{}, uint64(now.Nano()+shareLife.Nanoseconds())
	for vip, cut := range cuts {
		if live := s.rows.Live[vip]; live != nil {
			vips[vip] = true
			row := &s.policers.Rows[live.Row.Vip]
			atomic.StoreUint64(&row.Drop, dropped(cut.Others))
			atomic.StoreUint64(&row.Until, until)
		}
	}
	s.vips = vips
	return s.flagShares()
}

// flagShares sets ENDPOINT_FAIR_SHARE in the rows of these VIPs' endpoints, and clears it in others'.
func (s *Table) flagShares() error {
	flag := func(flags bpf.MuxEndpointFlag, vip netip.Addr) bpf.MuxEndpointFlag {
		if s.vips[vip] {
			return flags | bpf.MuxEndpointFlagENDPOINT_FAIR_SHARE
		}
		return flags &^ bpf.MuxEndpointFlagENDPOINT_FAIR_SHARE
	}
	for key, live := range s.endpoints.Live {
		flags := flag(live.Row.Flags, key.VIP)
		if flags == live.Row.Flags {
			continue
		}
		live.Row.Flags = flags
		if err := s.endpoints.PutRow(key, live.Row); err != nil {
			return err
		}
	}
	for vip := range s.snat.VIPs() {
		live := s.rows.Live[vip]
		row := live.Row
		row.Flags = flag(row.Flags, vip)
		if err := s.rows.Write(vip, live, row); err != nil {
			return err
		}
	}
	return nil
}

// writeSourceShares makes the table source_shares what cuts say of sources.
func (s *Table) writeSourceShares(cuts map[netip.Addr]overload.Cut) error {
	next := map[bpf.MuxShareKey]uint64{}
	for vip, cut := range cuts {
		live := s.rows.Live[vip]
		if live == nil {
			continue
		}
		for prefix, part := range cut.Sources {
			if len(next) < int(s.tables.SourceShares.MaxEntries()) {
				next[shareKey(live.Row.Vip, prefix)] = dropped(part)
			}
		}
	}
	for key := range s.sources {
		if _, stays := next[key]; stays {
			continue
		}
		if err := s.tables.SourceShares.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete row of source_shares: %w", err)
		}
		delete(s.sources, key)
	}
	if s.sources == nil {
		s.sources = map[bpf.MuxShareKey]uint64{}
	}
	for key, drop := range next {
		if was, there := s.sources[key]; there && was == drop {
			continue
		}
		if err := s.tables.SourceShares.Put(key, drop); err != nil {
			return fmt.Errorf("write row of source_shares: %w", err)
		}
		s.sources[key] = drop
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

// Adopt discards the drop probabilities that the previous process set.
func (s *Table) Adopt() error {
	for key, live := range s.endpoints.Live {
		if err := s.unshare(key, &live.Row); err != nil { // AdoptEndpointIndex writes it where packets read
			return err
		}
	}
	for vip, live := range s.rows.Live {
		if err := s.unshare(viprow.Key(vip), &live.Row); err != nil {
			return err
		}
	}
	var key bpf.MuxShareKey
	var drop uint64
	var stale []bpf.MuxShareKey
	entries := s.tables.SourceShares.Iterate()
	for entries.Next(&key, &drop) {
		stale = append(stale, key)
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read table source_shares: %w", err)
	}
	for _, key := range stale {
		if err := s.tables.SourceShares.Delete(key); err != nil {
			return fmt.Errorf("delete row of source_shares: %w", err)
		}
	}
	return nil
}

func (s *Table) unshare(key model.EndpointKey, row *bpf.MuxEndpoint) error {
	if row.Flags&bpf.MuxEndpointFlagENDPOINT_FAIR_SHARE == 0 {
		return nil
	}
	row.Flags &^= bpf.MuxEndpointFlagENDPOINT_FAIR_SHARE
	if err := s.tables.Endpoints.Put(bpf.ToKey(key), *row); err != nil {
		return fmt.Errorf("write row of endpoints: %w", err)
	}
	return nil
}
