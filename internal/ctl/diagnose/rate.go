package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rate"
)

// gauge makes rates of the counters that muxes report. A mux's rates are those between its last two
// reports, whenever they came.
type gauge struct {
	muxes    map[string]*muxGauge
	hosts    map[string]*hostGauge
	subflows map[string]*subflowGauge
}

type muxGauge struct {
	reported  time.Time
	verdicts  map[string]rate.Count
	endpoints map[string]rate.Count

	verdictRates  map[string]rate.Rate // nil until the second report
	endpointRates map[string]rate.Rate
	addressRates  map[string]float64 // packets a second, by the address of VIPs
}

func newGauge() *gauge { return &gauge{muxes: map[string]*muxGauge{}} }

// observe updates the rates by the muxes' reports. A disconnected mux has none.
func (g *gauge) observe(muxes []*weirv1.Node) {
	seen := map[string]bool{}
	for _, n := range muxes {
		status := n.GetStatus()
		if n.GetRole() != roleMux || !status.GetConnected() || status.GetMux() == nil {
			continue
		}
		seen[n.GetName()] = true
		at := status.GetLastSeen().AsTime()
		last := g.muxes[n.GetName()]
		if last != nil && !at.After(last.reported) {
			continue
		}
		g.muxes[n.GetName()] = newMuxGauge(last, at, status.GetMux())
	}
	for name := range g.muxes {
		if !seen[name] {
			delete(g.muxes, name)
		}
	}
}

func newMuxGauge(last *muxGauge, at time.Time, mux *weirv1.MuxStatus) *muxGauge {
	m := &muxGauge{reported: at, verdicts: map[string]rate.Count{}, endpoints: map[string]rate.Count{}}
	for _, c := range mux.GetVerdicts() {
		m.verdicts[c.GetName()] = rate.Count{Packets: c.GetPackets(), Bytes: c.GetBytes()}
	}
	addresses := make(map[string]string, len(mux.GetEndpoints())) // by the endpoint's name
	for _, c := range mux.GetEndpoints() {
		name := table.EndpointName(c.GetEndpoint())
		m.endpoints[name], addresses[name] = rate.Count{Packets: c.GetPackets(), Bytes: c.GetBytes()}, c.GetEndpoint().GetVip()
	}
	if last != nil {
		over := at.Sub(last.reported)
		m.verdictRates = rate.Growth(last.verdicts, m.verdicts, over)
		m.endpointRates, m.addressRates = rate.Growth(last.endpoints, m.endpoints, over), map[string]float64{}
		for name, r := range m.endpointRates {
			m.addressRates[addresses[name]] += r.Packets
		}
	}
	return m
}

// ready says whether every mux has rates, and every host with bypassed traffic or subflows.
func (g *gauge) ready() bool {
	for _, m := range g.muxes {
		if m.verdictRates == nil {
			return false
		}
	}
	for _, h := range g.hosts {
		if h.rates == nil {
			return false
		}
	}
	for _, s := range g.subflows {
		if s.rates == nil {
			return false
		}
	}
	return true
}

func (g *gauge) endpoint(name string) (sum rate.Rate) {
	for _, m := range g.muxes {
		sum = sum.Add(m.endpointRates[name])
	}
	return sum
}

// busiest are the addresses of VIPs with the most packets a second, n at most.
func (g *gauge) busiest(n int) []string {
	sums := map[string]float64{}
	for _, m := range g.muxes {
		for address, packets := range m.addressRates {
			sums[address] += packets
		}
	}
	addresses := slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), strings.Compare(a, b))
	})
	return addresses[:min(n, len(addresses))]
}

// verdicts are the rates of all muxes together, by name.
func (g *gauge) verdicts() map[string]rate.Rate {
	sums := map[string]rate.Rate{}
	for _, m := range g.muxes {
		for name, r := range m.verdictRates {
			sums[name] = sums[name].Add(r)
		}
	}
	return sums
}

// mux sums the rates of a mux's verdicts with the prefix.
func (g *gauge) mux(name, prefix string) (sum rate.Rate) {
	if m := g.muxes[name]; m != nil {
		for verdict, r := range m.verdictRates {
			if strings.HasPrefix(verdict, prefix) {
				sum = sum.Add(r)
			}
		}
	}
	return sum
}

// rated is a row of a table, with what it is sorted by.
type rated struct {
	by    float64
	cells []any
}

// ratedTable writes rows by falling rate, equal ones by their first cell.
func ratedTable(rows []rated, empty string, head ...string) *table.Table {
	slices.SortFunc(rows, func(a, b rated) int {
		return cmp.Or(cmp.Compare(b.by, a.by), strings.Compare(fmt.Sprint(a.cells...), fmt.Sprint(b.cells...)))
	})
	t := table.New("", empty, head...)
	for _, row := range rows {
		t.Add(row.cells...)
	}
	return t
}

// perSecond writes a rate with three digits: "0", "12", "1.23k", "4.56M".
func perSecond(n float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= unit.size {
			return fmt.Sprintf("%.3g%s", n/unit.size, unit.name)
		}
	}
	if n > 0 && n < 10 {
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}
