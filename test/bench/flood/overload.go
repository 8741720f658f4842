package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// overload is what a mux gave to each tenant while more came than it could do.
type overload struct {
	Told    string  `json:"told"` // by the mux: when the overload began
	Rounds  []round `json:"rounds"`
	Tenants []given `json:"tenants"` // once the shares had been there for some seconds
	Lost    float64 `json:"lost"`    // of what was sent then, before the mux's program saw it: of all tenants alike
}

// round is some seconds.
type round struct {
	At   float64 `json:"at_s"`
	Sent float64 `json:"sent_per_s"`
	Lost float64 `json:"lost_per_s"` // before the mux's program saw them
}

// given is what a tenant got.
type given struct {
	Workloads int     `json:"workloads"`
	Sent      float64 `json:"sent_per_s"`
	Forwarded float64 `json:"forwarded_per_s"`
}

// Of what comes, the first two tenants send far more than their share, one of which has twice the workloads, and a third
// one little.
var (
	sharesOf    = []int{49, 50, 1} // % of the packets
	workloadsOf = []int{10, 5, 10}
)

// sharingVIP is that of one of these tenants, who are others than the floods' victims: a mux goes on to know backends for a
// while that were taken away, and counts them.
func sharingVIP(tenant int) netip.Addr {
	return netip.AddrFrom4([4]byte{203, 0, 113, byte(90 + tenant)})
}

const (
	overloaded = "mux1"
	settled    = 6 * time.Second // until the shares are there
)

// measureOverload has more datagrams come to one mux than it can do.
func (w *world) measureOverload(ctx context.Context, how options) (o *overload, err error) {
	var b strings.Builder
	var announced []netip.Addr
	for tenant, workloads := range workloadsOf {
		w.write(&b, service{owner: "sharing", tenant: tenant, vip: sharingVIP(tenant), workloads: workloads}, modes[0])
		announced = append(announced, sharingVIP(tenant))
	}
	if err := benchlab.Apply(ctx, w.lab, b.String(), announced...); err != nil {
		return nil, err
	}
	mux, err := w.lab.NS(overloaded)
	if err != nil {
		return nil, err
	}
	sending, stop := context.WithCancel(ctx)
	var sent atomic.Int64
	ended := make(chan error, 1)
	mix := flood.Mix{First: sharingVIP(0), Shares: sharesOf, Delay: how.delay}
	go func() { ended <- netload.Overload(sending, w.lab, overloaded, mix, &sent) }()
	o, err = w.shared(ctx, mux, &sent, how.overload)
	stop()
	return o, errors.Join(err, <-ended)
}

// counted is what was sent, lost, and forwarded for each tenant up to a time.
type counted struct {
	at         time.Time
	sent, lost float64
	forwarded  []float64
}

func (w *world) countAll(mux *netns.NS, sent *atomic.Int64) (c counted, err error) {
	text, err := w.lab.Run(overloaded, "curl", "--silent", "--fail", "http://127.0.0.1:7411/metrics")
	if err != nil {
		return c, fmt.Errorf("read the metrics of %s: %w", overloaded, err)
	}
	for tenant := range sharesOf {
		packets, label := 0.0, fmt.Sprintf(`vip="%s"`, sharingVIP(tenant))
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "weir_mux_endpoint_packets_total{") || !strings.Contains(line, label) {
				continue
			}
			fields := strings.Fields(line)
			n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				return c, err
			}
			packets += n
		}
		c.forwarded = append(c.forwarded, packets)
	}
	link, err := mux.Netlink().LinkByName(netlab.Uplink)
	if err != nil {
		return c, err
	}
	c.at, c.sent, c.lost = time.Now(), float64(sent.Load()), float64(link.Attrs().Statistics.RxDropped)
	return c, nil
}

var beganLine = regexp.MustCompile(`msg="overload began" reason="([^"]*)"`)

// shared looks every second, and takes what tenants got once the shares are settled.
func (w *world) shared(ctx context.Context, mux *netns.NS, sent *atomic.Int64, lasts time.Duration) (*overload, error) {
	o := &overload{}
	first, err := w.countAll(mux, sent)
	if err != nil {
		return nil, err
	}
	last, from := first, counted{}
	for ctx.Err() == nil && last.at.Sub(first.at) < settled+lasts {
		pause(ctx, time.Second)
		now, err := w.countAll(mux, sent)
		if err != nil {
			return nil, err
		}
		took := now.at.Sub(last.at).Seconds()
		o.Rounds = append(o.Rounds, round{At: now.at.Sub(first.at).Seconds(), Sent: (now.sent - last.sent) / took, Lost: (now.lost - last.lost) / took})
		if last = now; from.at.IsZero() && now.at.Sub(first.at) >= settled {
			from = now
		}
	}
	took := last.at.Sub(from.at).Seconds()
	o.Lost = (last.lost - from.lost) / max(last.sent-from.sent, 1)
	for tenant, share := range sharesOf {
		o.Tenants = append(o.Tenants, given{
			Workloads: workloadsOf[tenant], Sent: (last.sent - from.sent) / took * float64(share) / 100,
			Forwarded: (last.forwarded[tenant] - from.forwarded[tenant]) / took,
		})
	}
	if told := beganLine.FindStringSubmatch(w.lab.Log(overloaded, "weir-mux")); told != nil {
		o.Told = told[1]
	}
	return o, ctx.Err()
}

func (o *overload) print(to io.Writer) {
	fmt.Fprintf(to, "told by the mux: %s\nlost by its interface: %.3f\n", o.Told, o.Lost)
	t := newTable(to, "overload", "workloads", "sent, a second", "forwarded", "of what was sent", "for each workload", "of the first tenant's")
	for i, g := range o.Tenants {
		each := g.Forwarded / float64(g.Workloads)
		t.row("tenant-%d\t%d\t%.0f\t%.0f\t%.3f\t%.0f\t%.3f", i, g.Workloads, g.Sent, g.Forwarded, g.Forwarded/max(g.Sent, 1), each, each/(o.Tenants[0].Forwarded/float64(o.Tenants[0].Workloads)))
	}
	t.end()
}
