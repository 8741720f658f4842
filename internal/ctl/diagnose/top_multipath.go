package diagnose

import (
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/table"
)

// joins are what becomes of SYNs that join a connection of Multipath TCP, at a host.
var joins = []struct {
	head  string
	count func(*weirv1.HostMultipath) uint64
}{
	{"OWN/S", (*weirv1.HostMultipath).GetOwn},
	{"BROUGHT/S", (*weirv1.HostMultipath).GetBrought},
	{"ASKED/S", (*weirv1.HostMultipath).GetAsked},
	{"HANDED ON/S", (*weirv1.HostMultipath).GetHandedOn},
	{"UNKNOWN/S", (*weirv1.HostMultipath).GetUnknown},
}

// subflowGauge makes rates of what a host reports of Multipath TCP, as muxGauge does of muxes.
type subflowGauge struct {
	reported time.Time
	last     *weirv1.HostMultipath
	rates    []float64 // as joins; nil until the second report
}

// observeSubflows updates the rates of joins. A host that is disconnected, or has no endpoint with multipath, has none.
func (g *gauge) observeSubflows(hosts []*weirv1.Node) {
	before := g.subflows
	g.subflows = map[string]*subflowGauge{}
	for _, n := range hosts {
		status := n.GetStatus()
		now := status.GetHost().GetMultipath()
		if !status.GetConnected() || now == nil {
			continue
		}
		at, last := status.GetLastSeen().AsTime(), before[n.GetName()]
		if last == nil || at.After(last.reported) {
			last = newSubflowGauge(last, at, now)
		}
		g.subflows[n.GetName()] = last
	}
}

func newSubflowGauge(last *subflowGauge, at time.Time, now *weirv1.HostMultipath) *subflowGauge {
	s := &subflowGauge{reported: at, last: now}
	if last == nil {
		return s
	}
	seconds := at.Sub(last.reported).Seconds()
	for _, of := range joins {
		count, before := of.count(now), of.count(last.last)
		if count < before {
			before = count // counters began anew
		}
		s.rates = append(s.rates, float64(count-before)/seconds)
	}
	return s
}

func (t *top) multipathTable() *table.Table {
	head := []string{"HOST", "CONNECTIONS", "NAMES", "JOINED"}
	for _, of := range joins {
		head = append(head, of.head)
	}
	var rows []rated
	for name, s := range t.gauge.subflows {
		row := rated{cells: []any{name, s.last.GetConnections(), s.last.GetNames(), s.last.GetJoined()}}
		for _, n := range s.rates {
			row.by += n
			row.cells = append(row.cells, perSecond(n))
		}
		rows = append(rows, row)
	}
	return ratedTable(rows, "no endpoint with multipath", head...)
}

// anyMultipath says whether a VIP has an endpoint with multipath.
func anyMultipath(vips []*weirv1.VIP) bool {
	for _, vip := range vips {
		for _, e := range vip.GetEndpoints() {
			if e.GetMultipath() != "" && e.GetMultipath() != "off" {
				return true
			}
		}
	}
	return false
}
