package choice

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/matrix"
	"github.com/weirlb/weir/internal/traffic"
)

// sources makes rates of what agents estimate that they deliver, which says from which racks it comes, and has what switches
// bring.
type sources struct {
	since time.Time
	last  map[manager][]matrix.Row // as read last
	rates map[netip.Addr]rate
}

// manager is a manager, since it began to count.
type manager struct {
	name  string
	since int64
}

// rate is what agents deliver of a VIP.
type rate struct {
	all    traffic.Rate
	byRack map[int32]traffic.Rate // of it
}

// measure reads what agents of all managers counted, now and then.
func (c *Controller) measure(ctx context.Context) {
	if c.turn.Take(ctx) != nil {
		return
	}
	wait := c.Matrix == nil || c.Now().Sub(c.view.sources.since) < meterSpan
	c.turn.Leave()
	var network *fabric.Fabric
	for f := range c.Store.State().Fabrics.Values() {
		network = f.Network
	}
	if wait || network == nil {
		return
	}
	var read []*weirv1.ReadTrafficResponse
	err := c.Matrix(ctx, &weirv1.ReadTrafficRequest{}, func(p *weirv1.ReadTrafficResponse) error {
		read = append(read, p)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		c.Log.Warn("what agents count is not read, trying again", "err", err)
	}
	if c.turn.Take(ctx) != nil {
		return
	}
	defer c.turn.Leave()
	c.view.sources.observe(network, read, c.Now())
}

// observe takes what was counted since the last time. What a manager counted before it was read once adds nothing.
func (s *sources) observe(f *fabric.Fabric, read []*weirv1.ReadTrafficResponse, now time.Time) {
	totals := map[manager][]matrix.Row{}
	for _, p := range read {
		if p.GetTrouble() == "" {
			of := manager{p.GetManager(), p.GetSince().AsTime().UnixNano()}
			totals[of] = append(totals[of], matrix.RowsFromProto(p.GetTraffic())...)
		}
	}
	span := now.Sub(s.since).Seconds()
	rates := map[netip.Addr]rate{}
	for of, rows := range totals {
		before, known := s.last[of]
		if !known || span <= 0 {
			continue
		}
		for _, row := range matrix.Since(before, rows) {
			more := min(traffic.Rate(float64(row.Bytes)*8/1000/span), traffic.MaxRate/1024)
			r := rates[row.VIP]
			r.all = min(r.all+more, traffic.MaxRate/1024)
			if rack, ok := f.RackOf(row.From.Addr()); ok && row.From.IsValid() {
				if r.byRack == nil {
					r.byRack = map[int32]traffic.Rate{}
				}
				r.byRack[rack] += more
			}
			rates[row.VIP] = r
		}
	}
	s.since, s.last, s.rates = now, totals, rates
}

// of is what a VIP receives: as muxes count it or, if that is more, as agents estimate it, and what of that comes from racks.
func (s *sources) of(vip netip.Addr, byMuxes traffic.Rate) (all traffic.Rate, shares []traffic.Share) {
	r := s.rates[vip]
	if all = max(byMuxes, r.all); r.all == 0 {
		return all, nil
	}
	for rack, part := range r.byRack {
		if share := traffic.Rate(float64(all) * float64(part) / float64(r.all)); share > 0 {
			shares = append(shares, traffic.Share{Rack: rack, Rate: share})
		}
	}
	slices.SortFunc(shares, func(a, b traffic.Share) int { return cmp.Compare(a.Rack, b.Rack) })
	return all, shares
}
