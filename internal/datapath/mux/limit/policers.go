package limit

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// Policers are the VIPs' rate limits in the table that packets read, mapped into memory. The caller holds the data plane's
// lock.
type Policers struct {
	tables *bpf.Tables
	Rows   []bpf.MuxVipPolicer // nil until they are needed
	raw    [][]byte
	muxes  uint64 // that a limit is divided among
}

// Burst is the size of a token bucket: as much as its rate allows in this time.
const Burst = 100 * time.Millisecond

// Bounds of a bucket's cost: 65 535 bytes at once must not overflow 64 bits, nor must a limit above what any
// mux can do look like none.
const (
	leastCost = 1
	mostCost  = 1 << 47
	costUnit  = 1 << bpf.MuxVipCostLayoutVIP_COST_SHIFT
	mostFrame = 1 << 16
)

// New has no limits yet.
func New(tables *bpf.Tables) *Policers { return &Policers{tables: tables} }

// SetMuxes says how many muxes limits are divided among, and whether that is another number than before: then limits
// are to be written anew.
func (l *Policers) SetMuxes(n int) (changed bool) {
	if n < 1 || l.muxes == uint64(n) {
		return false
	}
	l.muxes = uint64(n)
	return true
}

// Open maps the table into memory, once.
func (l *Policers) Open() (err error) {
	if l.Rows != nil {
		return nil
	}
	if l.Rows, err = abi.MapRows[bpf.MuxVipPolicer](&l.raw, l.tables.VIPPolicers); err != nil {
		return fmt.Errorf("map table vip_policers: %w", err)
	}
	return nil
}

// Close ends the sharing of memory with packets.
func (l *Policers) Close() {
	abi.Unmap(&l.raw)
	l.Rows = nil
}

// bucketOf is the emission interval and the burst tolerance of a bucket that lets rate through each second, on one of
// so many muxes. unit is the most that is taken at once.
func bucketOf(rate, muxes, unit uint64) (cost, most uint64) {
	if rate == 0 {
		return 0, 0
	}
	cost = min(max(uint64(time.Second)*costUnit/rate*max(muxes, 1), leastCost), mostCost)
	return cost, max(uint64(Burst), cost*unit/costUnit)
}

// Write stores the limits of the VIP with that index; what its buckets hold stays.
func (l *Policers) Write(vip uint32, to model.Limits) error {
	if err := l.Open(); err != nil {
		return err
	}
	row := &l.Rows[vip]
	for i, limit := range []struct{ rate, unit uint64 }{{to.Packets, 1}, {to.Bytes, mostFrame}, {to.Connections, 1}} {
		cost, most := bucketOf(limit.rate, l.muxes, limit.unit)
		atomic.StoreUint64(&row.BurstTolerance[i], most)
		atomic.StoreUint64(&row.EmissionInterval[i], cost)
	}
	return nil
}

// Clear begins anew with an index that another VIP may have had.
func (l *Policers) Clear(vip uint32) error {
	if err := l.Open(); err != nil {
		return err
	}
	l.Rows[vip] = bpf.MuxVipPolicer{} // nobody's endpoints say that it is to be read
	zero := make([]bpf.MuxCounter, ebpf.MustPossibleCPU())
	if err := l.tables.VIPDrops.Put(vip, zero); err != nil {
		return fmt.Errorf("clear row of vip_refused: %w", err)
	}
	return nil
}

// Adopt clears the drop probabilities that the previous process set.
func (l *Policers) Adopt() error {
	if err := l.Open(); err != nil {
		return err
	}
	for i := range l.Rows {
		if atomic.LoadUint64(&l.Rows[i].Drop) != 0 {
			atomic.StoreUint64(&l.Rows[i].Drop, 0)
		}
	}
	return nil
}
