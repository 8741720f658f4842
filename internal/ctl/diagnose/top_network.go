package diagnose

import (
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/table"
	"github.com/weirlb/weir/internal/rate"
)

// attached is a VIP's address and a network's name.
type attached struct{ vip, network string }

// bypassed is what clients of a network and backends of a VIP did, past the muxes.
type bypassed struct {
	rate.Count

	opened, open uint64
	handshakes   []uint64
}

// bypassRate is the growth of it per second; of handshakes, those between two reports.
type bypassRate struct {
	rate.Rate

	opened     float64
	open       uint64
	handshakes []uint64
}

// hostGauge makes rates of what a host reports of virtual networks, as muxGauge does of muxes.
type hostGauge struct {
	reported time.Time
	counts   map[attached]bypassed
	rates    map[attached]bypassRate // nil until the second report
}

// observeHosts updates the rates of bypassed traffic. A host that is disconnected, or has none, has no rates.
func (g *gauge) observeHosts(hosts []*weirv1.Node) {
	before := g.hosts
	g.hosts = map[string]*hostGauge{}
	for _, n := range hosts {
		status := n.GetStatus()
		if n.GetRole() == roleMux || !status.GetConnected() || len(status.GetHost().GetNetworks()) == 0 {
			continue
		}
		at, last := status.GetLastSeen().AsTime(), before[n.GetName()]
		if last == nil || at.After(last.reported) {
			last = newHostGauge(last, at, status.GetHost())
		}
		g.hosts[n.GetName()] = last
	}
}

func newHostGauge(last *hostGauge, at time.Time, host *weirv1.HostStatus) *hostGauge {
	h := &hostGauge{reported: at, counts: map[attached]bypassed{}}
	for _, t := range host.GetNetworks() {
		b := bypassed{handshakes: t.GetHandshakes()}
		for _, of := range t.GetBackends() {
			b.Packets += of.GetPacketsIn() + of.GetPacketsOut()
			b.Bytes += of.GetBytesIn() + of.GetBytesOut()
			b.opened += of.GetOpened()
			b.open += of.GetOpen()
		}
		h.counts[attached{t.GetVip(), t.GetNetwork()}] = b
	}
	if last != nil {
		h.rates = map[attached]bypassRate{}
		for key, now := range h.counts {
			if r, ok := now.since(last.counts[key], at.Sub(last.reported)); ok {
				h.rates[key] = r
			}
		}
	}
	return h
}

// since is the growth since before; false: counters began anew.
func (b bypassed) since(before bypassed, over time.Duration) (r bypassRate, ok bool) {
	of, ok := b.Since(before.Count, over)
	if !ok || b.opened < before.opened {
		return r, false
	}
	r = bypassRate{
		Rate:   of,
		opened: float64(b.opened-before.opened) / over.Seconds(), open: b.open, handshakes: make([]uint64, len(b.handshakes)),
	}
	for i, n := range b.handshakes {
		if i < len(before.handshakes) {
			n -= min(n, before.handshakes[i])
		}
		r.handshakes[i] = n
	}
	return r, true
}

// networks are the rates of all hosts together.
func (g *gauge) networks() map[attached]bypassRate {
	sums := map[attached]bypassRate{}
	for _, h := range g.hosts {
		for key, r := range h.rates {
			sum := sums[key]
			sum.Rate = sum.Add(r.Rate)
			sum.opened += r.opened
			sum.open += r.open
			for i, n := range r.handshakes {
				if i == len(sum.handshakes) {
					sum.handshakes = append(sum.handshakes, 0)
				}
				sum.handshakes[i] += n
			}
			sums[key] = sum
		}
	}
	return sums
}

func (t *top) networkTable() *table.Table {
	names := map[string]string{}
	for _, vip := range t.vips {
		names[vip.GetAddress()] = vip.GetName()
	}
	var rows []rated
	for key, r := range t.gauge.networks() {
		name := names[key.vip]
		if name == "" {
			continue // t.more says that not all are shown
		}
		rows = append(rows, rated{r.Packets, []any{
			name, key.network, perSecond(r.Packets), perSecond(r.Bits), perSecond(r.opened), r.open,
			table.RTT(r.handshakes, 0.5), table.RTT(r.handshakes, 0.99),
		}})
	}
	return ratedTable(rows, "no bypassed traffic", "VIP", "NETWORK", "PACKETS/S", "BITS/S", "NEW/S", "OPEN", "RTT P50", "RTT P99")
}

// anyAttached says whether a VIP is attached to a network.
func anyAttached(vips []*weirv1.VIP) bool {
	for _, vip := range vips {
		if len(vip.GetAttachments()) > 0 {
			return true
		}
	}
	return false
}
