package planinput

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/matrix"
	"github.com/weirlb/weir/internal/traffic"
)

// Recording makes intervals of traffic from the counters that muxes report of what they forward, and from what agents
// estimate that they deliver, which says from which racks packets come and counts those that switches bring.
type Recording struct {
	fabric  *fabric.Fabric
	reports map[string]*muxReport   // by mux
	bytes   map[string]uint64       // of the interval, by the VIP's address
	totals  map[source][]matrix.Row // as read last
	sampled map[string]*sampled     // of the interval, by the VIP's address
}

// source is a manager, since it began to count.
type source struct {
	manager string
	since   int64
}

// sampled is what agents estimate of a VIP.
type sampled struct {
	bytes  uint64
	byRack map[int32]uint64 // of bytes
}

// muxReport is the newest report of a mux.
type muxReport struct {
	since, at time.Time // that the interval has of it, and the newest
	bytes     map[endpointKey]uint64
}

type endpointKey struct {
	vip, protocol string
	port          uint32
}

// NewRecording returns an empty recording. Backends are in the fabric's racks by their prefixes.
func NewRecording(f *fabric.Fabric) (*Recording, error) {
	if !f.HasPrefixes() {
		return nil, errors.New("no rack of the fabric has prefixes, by which backends are found: " +
			"give each rack the prefixes of its hosts and workloads")
	}
	return &Recording{
		fabric: f, reports: map[string]*muxReport{}, bytes: map[string]uint64{}, totals: map[source][]matrix.Row{}, sampled: map[string]*sampled{},
	}, nil
}

// Observe adds what muxes forwarded since the reports observed before. The first report of a mux adds nothing. A
// counter that is less than before began anew, at 0.
func (r *Recording) Observe(muxes []*weirv1.Node) {
	for _, n := range muxes {
		at := n.GetStatus().GetLastSeen().AsTime()
		last := r.reports[n.GetName()]
		if n.GetStatus().GetMux() == nil || last != nil && !at.After(last.at) {
			continue
		}
		next := &muxReport{since: at, at: at, bytes: map[endpointKey]uint64{}}
		if last != nil {
			next.since = last.since
		}
		for _, c := range n.GetStatus().GetMux().GetEndpoints() {
			key := endpointKey{c.GetEndpoint().GetVip(), c.GetEndpoint().GetProtocol(), c.GetEndpoint().GetPort()}
			next.bytes[key] = c.GetBytes()
			if last == nil {
				continue
			}
			before := last.bytes[key]
			if c.GetBytes() < before {
				before = 0
			}
			r.bytes[key.vip] += c.GetBytes() - before
		}
		r.reports[n.GetName()] = next
	}
}

// ObserveTraffic adds what agents delivered since the totals observed before. The first totals of a manager add nothing.
func (r *Recording) ObserveTraffic(read []*weirv1.ReadTrafficResponse) {
	totals := map[source][]matrix.Row{}
	for _, message := range read {
		if message.GetTrouble() != "" {
			continue
		}
		of := source{message.GetManager(), message.GetSince().AsTime().UnixNano()}
		totals[of] = append(totals[of], matrix.RowsFromProto(message.GetTraffic())...)
	}
	for of, rows := range totals {
		if before, known := r.totals[of]; known {
			for _, row := range matrix.Since(before, rows) {
				r.addSampled(row)
			}
		}
		r.totals[of] = rows
	}
}

func (r *Recording) addSampled(row matrix.Row) {
	vip := row.VIP.String()
	of := r.sampled[vip]
	if of == nil {
		of = &sampled{byRack: map[int32]uint64{}}
		r.sampled[vip] = of
	}
	of.bytes += row.Bytes
	if rack, ok := r.fabric.RackOf(row.From.Addr()); ok && row.From.IsValid() {
		of.byRack[rack] += row.Bytes
	}
}

// demand is what a VIP received: as muxes counted it or, if that is more, as agents estimate it, from where agents say.
func (r *Recording) demand(vip string, length time.Duration) traffic.Demand {
	of := r.sampled[vip]
	if of == nil {
		return traffic.Demand{External: kbitPerSecond(r.bytes[vip], length)}
	}
	whole := max(r.bytes[vip], of.bytes)
	rate := kbitPerSecond(whole, length)
	d := traffic.Demand{External: rate}
	for rack, bytes := range of.byRack {
		if share := traffic.Rate(float64(rate) * float64(bytes) / float64(of.bytes)); share > 0 {
			d.External -= share
			d.Sources = append(d.Sources, traffic.Share{Rack: rack, Rate: share})
		}
	}
	slices.SortFunc(d.Sources, func(a, b traffic.Share) int { return cmp.Compare(a.Rack, b.Rack) })
	return d
}

// Reported says whether any mux has reported.
func (r *Recording) Reported() bool { return len(r.reports) > 0 }

// Span is the time that reports of the interval cover; 0: no mux has reported twice.
func (r *Recording) Span() (since time.Time, length time.Duration) {
	for _, m := range r.reports {
		if d := m.at.Sub(m.since); d > length {
			since, length = m.since, d
		}
	}
	return since, length
}

// Next returns what VIPs received in the interval and begins the next. It says what it leaves out.
func (r *Recording) Next(number int, vips []*weirv1.VIP) (interval traffic.Interval, left []string, err error) {
	_, length := r.Span()
	if length == 0 {
		return interval, nil, errors.New("no mux has reported twice")
	}
	interval.Number = number
	var sum traffic.Rate
	for _, vip := range vips {
		demand := r.demand(vip.GetAddress(), length)
		rate := demand.Rate()
		delete(r.bytes, vip.GetAddress())
		if sum += rate; sum > traffic.MaxRate {
			return interval, nil, fmt.Errorf("up to vip %s, muxes count more than %d kbit/s", vip.GetName(), traffic.MaxRate)
		}
		backends, strays := r.backends(vip)
		for _, b := range strays {
			left = append(left, fmt.Sprintf("backend %s: it is in no rack of the fabric", b))
		}
		switch {
		case len(backends) > 0:
			demand.VIP, demand.Backends = vip.GetName(), backends
			interval.Demands = append(interval.Demands, demand)
		case rate > 0:
			left = append(left, fmt.Sprintf("vip %s with %s: it has no backend in a rack", vip.GetName(), FormatBits(rate)))
		}
	}
	for address, bytes := range r.bytes {
		if rate := kbitPerSecond(bytes, length); rate > 0 {
			left = append(left, fmt.Sprintf("%s to %s: no vip has the address any more", FormatBits(rate), address))
		}
	}
	slices.Sort(left)
	slices.SortFunc(interval.Demands, func(a, b traffic.Demand) int { return strings.Compare(a.VIP, b.VIP) })
	clear(r.bytes)
	clear(r.sampled)
	for _, m := range r.reports {
		m.since = m.at
	}
	return interval, left, nil
}

// kbitPerSecond is the mean rate of bytes.
func kbitPerSecond(bytes uint64, time time.Duration) traffic.Rate {
	return traffic.Rate(math.Round(min(float64(bytes)*8e6/float64(time), 2*float64(traffic.MaxRate))))
}

// mostStrays is how many backends without a rack an error names.
const mostStrays = 10

// Check refuses VIPs of which backends are in no rack, and such that have no backend at all.
func (r *Recording) Check(vips []*weirv1.VIP) error {
	var named []string
	strays, backends := 0, 0
	for _, vip := range vips {
		groups, without := r.backends(vip)
		named = append(named, without[:min(len(without), mostStrays-len(named))]...)
		strays, backends = strays+len(without), backends+len(groups)
	}
	if more := strays - len(named); more > 0 {
		named = append(named, fmt.Sprintf("%d more", more))
	}
	switch {
	case strays > 0:
		return fmt.Errorf("in no rack of the fabric: backends %s: give their racks prefixes that have the addresses",
			strings.Join(named, ", "))
	case backends == 0:
		return errors.New("no vip has a backend")
	}
	return nil
}

// backends counts a VIP's backends by rack, each address once, and names those that are in none. A backend is where
// its packets go. One that takes no new connections is none.
func (r *Recording) backends(vip *weirv1.VIP) (groups []traffic.Group, strays []string) {
	counts := map[int32]int32{}
	seen := map[string]bool{}
	for _, e := range vip.GetEndpoints() {
		for _, b := range e.GetBackends() {
			if seen[b.GetAddress()] || b.Weight != nil && b.GetWeight() == 0 {
				continue
			}
			seen[b.GetAddress()] = true
			to := cmp.Or(b.GetTunnel(), b.GetAddress())
			address, _ := netip.ParseAddr(to) // none is in no rack
			rack, ok := r.fabric.RackOf(address)
			if !ok {
				strays = append(strays, fmt.Sprintf("%s of vip %s on %s", to, vip.GetName(), b.GetHost()))
				continue
			}
			counts[rack]++
		}
	}
	for rack, n := range counts {
		groups = append(groups, traffic.Group{Rack: rack, Backends: n})
	}
	slices.SortFunc(groups, func(a, b traffic.Group) int { return cmp.Compare(a.Rack, b.Rack) })
	return groups, strays
}
