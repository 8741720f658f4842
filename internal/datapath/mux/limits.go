package mux

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// limits are the VIPs' rate limits in the table that packets read, mapped into memory.
type limits struct {
	rows  []bpf.MuxVipPolicer // nil until they are needed
	raw   [][]byte
	muxes uint64 // that a limit is divided among
}

// limitBurst is the size of a token bucket: as much as its rate allows in this time.
const limitBurst = 100 * time.Millisecond

// Bounds of a bucket's cost: 65 535 bytes at once must not overflow 64 bits, nor must a limit above what any
// mux can do look like none.
const (
	leastCost = 1
	mostCost  = 1 << 47
	costUnit  = 1 << bpf.MuxVipCostLayoutVIP_COST_SHIFT
	mostFrame = 1 << 16
)

// openLimits maps the table into memory, once.
func (d *Datapath) openLimits() (err error) {
	if d.limits.rows != nil {
		return nil
	}
	if d.limits.rows, err = bpf.MapRows[bpf.MuxVipPolicer](&d.limits.raw, d.tables.VIPPolicers); err != nil {
		return fmt.Errorf("map table vip_policers: %w", err)
	}
	return nil
}

func (l *limits) close() {
	for _, raw := range l.raw {
		_ = unix.Munmap(raw)
	}
	l.rows, l.raw = nil, nil
}

// bucketOf is the emission interval and the burst tolerance of a bucket that lets rate through each second, on one of
// so many muxes. unit is the most that is taken at once.
func bucketOf(rate, muxes, unit uint64) (cost, most uint64) {
	if rate == 0 {
		return 0, 0
	}
	cost = min(max(uint64(time.Second)*costUnit/rate*max(muxes, 1), leastCost), mostCost)
	return cost, max(uint64(limitBurst), cost*unit/costUnit)
}

// writeLimits stores the limits of the VIP with that index; what its buckets hold stays.
func (d *Datapath) writeLimits(vip uint32, l model.Limits) error {
	if err := d.openLimits(); err != nil {
		return err
	}
	row := &d.limits.rows[vip]
	for i, limit := range []struct{ rate, unit uint64 }{{l.Packets, 1}, {l.Bytes, mostFrame}, {l.Connections, 1}} {
		cost, most := bucketOf(limit.rate, d.limits.muxes, limit.unit)
		atomic.StoreUint64(&row.BurstTolerance[i], most)
		atomic.StoreUint64(&row.EmissionInterval[i], cost)
	}
	return nil
}

// clearLimits begins anew with an index that another VIP may have had.
func (d *Datapath) clearLimits(vip uint32) error {
	if err := d.openLimits(); err != nil {
		return err
	}
	d.limits.rows[vip] = bpf.MuxVipPolicer{} // nobody's endpoints say that it is to be read
	zero := make([]bpf.MuxCounter, ebpf.MustPossibleCPU())
	if err := d.tables.VIPDrops.Put(vip, zero); err != nil {
		return fmt.Errorf("clear row of vip_refused: %w", err)
	}
	return nil
}

// adoptLimits clears the drop probabilities that the previous process set.
func (d *Datapath) adoptLimits() error {
	if err := d.openLimits(); err != nil {
		return err
	}
	for i := range d.limits.rows {
		if atomic.LoadUint64(&d.limits.rows[i].Drop) != 0 {
			atomic.StoreUint64(&d.limits.rows[i].Drop, 0)
		}
	}
	return nil
}

// SetMuxes divides the limits of VIPs among so many muxes, of which each gets a like part of the traffic.
func (d *Datapath) SetMuxes(n int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n < 1 || d.limits.muxes == uint64(n) {
		return nil
	}
	d.limits.muxes = uint64(n)
	for key, live := range d.live {
		if live.settings.limits != (model.Limits{}) {
			if err := d.writeLimits(d.vips.live[key.VIP].row.Vip, live.settings.limits); err != nil {
				return err
			}
		}
	}
	return nil
}

// RefusedCounters counts the packets that rate limits or fair shares dropped, of each VIP that has limits or lost any.
func (d *Datapath) RefusedCounters() (map[netip.Addr]model.Counter, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	counters := map[netip.Addr]model.Counter{}
	for vip, live := range d.vips.live {
		counter, err := abi.Counter(d.tables.VIPDrops, live.row.Vip)
		if err != nil {
			return nil, fmt.Errorf("read what was refused of vip %s: %w", vip, err)
		}
		if counter != (model.Counter{}) {
			counters[vip] = counter
		}
	}
	for key, live := range d.live {
		if _, there := counters[key.VIP]; !there && live.row.Flags&bpf.MuxEndpointFlagENDPOINT_LIMITED != 0 {
			counters[key.VIP] = model.Counter{}
		}
	}
	return counters, nil
}
