package share

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/overload"
)

// leastSampled is how many packets of a prefix must have been sampled to name it.
const leastSampled = uint64(overload.LeastSource / muxShareSample)

// Sources estimates how many packets came from which prefixes of sources since the last call, for the VIPs
// that Set has sampled: of each VIP the largest, in order.
func (s *Table) Sources() (map[netip.Addr][]overload.Source, error) {
	vips := map[uint32]netip.Addr{}
	for vip := range s.vips {
		if live := s.rows.Live[vip]; live != nil {
			vips[live.Row.Vip] = vip
		}
	}
	found := map[netip.Addr][]overload.Source{}
	sampled, err := takeHeavyHitters(s.tables)
	if err != nil {
		return nil, err
	}
	for key, n := range sampled {
		if vip, known := vips[key.Vip]; known && n >= leastSampled {
			found[vip] = append(found[vip], overload.Source{
				Prefix: prefixOf(key), Packets: float64(n) * float64(muxShareSample),
			})
		}
	}
	for vip, list := range found {
		slices.SortFunc(list, func(a, b overload.Source) int {
			return cmp.Or(cmp.Compare(b.Packets, a.Packets), a.Prefix.Compare(b.Prefix))
		})
		found[vip] = list[:min(len(list), overload.MostSources)]
	}
	return found, nil
}

// The sketch.
const (
	muxShareSample        = int(bpf.MuxShareLayoutSHARE_SAMPLE)
	muxHeavyHitterRows    = int(bpf.MuxShareLayoutHEAVY_HITTER_ROWS)
	muxHeavyHitterColumns = int(bpf.MuxShareLayoutHEAVY_HITTER_COLUMNS)
)

// takeHeavyHitters reads and clears the sketch: how many packets of each candidate were sampled, over all CPUs. The
// smallest estimate of its rows is the best one, for each is an upper bound.
func takeHeavyHitters(t *bpf.Tables) (map[bpf.MuxShareKey]uint64, error) {
	cells := make([][]bpf.MuxHeavyHitter, muxHeavyHitterRows*muxHeavyHitterColumns)
	zero := make([]bpf.MuxHeavyHitter, ebpf.MustPossibleCPU())
	homes := [muxHeavyHitterRows]map[bpf.MuxShareKey]int{}
	for i := range homes {
		homes[i] = map[bpf.MuxShareKey]int{}
	}
	for i := range cells {
		if err := t.HeavyHitters.Lookup(uint32(i), &cells[i]); err != nil {
			return nil, fmt.Errorf("read row of heavy_hitters: %w", err)
		}
		empty := true
		for _, c := range cells[i] {
			if c.All == 0 {
				continue
			}
			empty = false
			homes[i/muxHeavyHitterColumns][c.Candidate] = i
		}
		if empty {
			continue
		}
		if err := t.HeavyHitters.Put(uint32(i), zero); err != nil {
			return nil, fmt.Errorf("clear row of heavy_hitters: %w", err)
		}
	}
	sampled := map[bpf.MuxShareKey]uint64{}
	for key, cell := range homes[0] {
		other, there := homes[1][key]
		if !there {
			continue // it is largest nowhere else, so it is small
		}
		sampled[key] = min(estimate(cells[cell], key), estimate(cells[other], key))
	}
	return sampled, nil
}

// estimate is how many packets of the key a cell has seen, at most.
func estimate(cell []bpf.MuxHeavyHitter, key bpf.MuxShareKey) (n uint64) {
	for _, c := range cell {
		if c.Candidate == key {
			n += (c.All + c.Lead) / 2
		} else {
			n += (c.All - c.Lead) / 2
		}
	}
	return n
}
