package choice

import (
	"net/netip"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/traffic"
)

// meterSpan is how long bytes are counted for a rate.
const meterSpan = 30 * time.Second

// meter makes rates of what muxes report that they forwarded.
type meter struct {
	since time.Time
	last  map[string]map[netip.Addr]uint64 // by mux, the counters that were added last
	bytes map[netip.Addr]uint64            // since
	rates map[netip.Addr]traffic.Rate      // of the span before
}

func newMeter() meter {
	return meter{last: map[string]map[netip.Addr]uint64{}, bytes: map[netip.Addr]uint64{}, rates: map[netip.Addr]traffic.Rate{}}
}

// rate is that of a VIP, if it is known.
func (m *meter) rate(vip netip.Addr) (traffic.Rate, bool) {
	rate, known := m.rates[vip]
	return rate, known
}

// observe adds what muxes forwarded since the last time. A counter that is less than before began anew, at 0.
func (m *meter) observe(s *store.State, newest func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus), now time.Time) {
	if !m.since.IsZero() && now.Sub(m.since) < meterSpan {
		return
	}
	seen := map[string]map[netip.Addr]uint64{}
	for mux := range s.MuxNodes() {
		_, detail := newest(s, mux)
		if detail.GetMux() == nil {
			continue
		}
		counters := map[netip.Addr]uint64{}
		for _, e := range detail.GetMux().GetEndpoints() {
			if vip, err := netip.ParseAddr(e.GetEndpoint().GetVip()); err == nil {
				counters[vip] += e.GetBytes()
			}
		}
		if len(counters) == 0 { // of a large report other managers have none: all of them are no growth once they are there
			continue
		}
		before, known := m.last[mux.Name]
		for vip, n := range counters {
			if was := before[vip]; known && n >= was {
				m.bytes[vip] += n - was
			} else if known {
				m.bytes[vip] += n
			}
		}
		seen[mux.Name] = counters
	}
	if !m.since.IsZero() {
		m.rates = make(map[netip.Addr]traffic.Rate, len(m.bytes))
		for vip, bytes := range m.bytes {
			m.rates[vip] = min(traffic.Rate(float64(bytes)*8/1000/now.Sub(m.since).Seconds()), traffic.MaxRate/1024)
		}
	}
	m.since, m.last, m.bytes = now, seen, map[netip.Addr]uint64{}
}
