package lab

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
)

// captures counts, on each mux's link, the packets that come from a VIP.
type captures map[string]*netload.Capture

func (d *demo) captureReplies() (captures, error) {
	c := captures{}
	for _, mux := range d.lab.Of(netlab.Mux) {
		capture, err := netload.CaptureReplies(d.lab, mux.Name)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c[mux.Name] = capture
	}
	return c, nil
}

func (c captures) count() (map[string]int, error) {
	counts := map[string]int{}
	for name, capture := range c {
		var err error
		if counts[name], err = capture.Count(); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

func (c captures) close() error {
	var errs []error
	for _, capture := range c {
		errs = append(errs, capture.Close())
	}
	return errors.Join(errs...)
}

func (d *demo) forwarded() (map[string]uint64, error) {
	counts := map[string]uint64{}
	for _, mux := range d.lab.Of(netlab.Mux) {
		var err error
		if counts[mux.Name], err = d.lab.Forwarded(mux.Name); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// tellShares sets what each backend answered against its weight.
func (d *demo) tellShares(results []load.Result) error {
	names := map[string]string{} // of workloads, by address
	for _, w := range d.lab.Of(netlab.Workload) {
		names[w.IPv4.String()], names[w.IPv6.String()] = w.Name, w.Name
	}
	d.say("\nWhich backend answered how often:\n")
	table := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "  backend\tweight\tshare due\t")
	for _, vip := range d.vips {
		fmt.Fprintf(table, "%s\t", vip.Name)
	}
	fmt.Fprintln(table)
	first := d.vips[0].Endpoints[0].Backends
	sum := 0
	for _, b := range first {
		sum += int(b.Weight)
	}
	for _, b := range first {
		name := names[b.Address.String()]
		fmt.Fprintf(table, "  %s\t%d\t%.1f %%\t", cmp.Or(name, b.Address.String()), b.Weight, percent(int(b.Weight), sum))
		for _, r := range results {
			fmt.Fprintf(table, "%d = %.1f %%\t", r.Backends[name], percent(r.Backends[name], r.Requests))
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

func percent(part, whole int) float64 { return 100 * float64(part) / float64(max(1, whole)) }

func (d *demo) tellClients(results []load.Result) {
	clients := map[string]int{}
	for _, r := range results {
		for address, count := range r.Clients {
			clients[address] += count
		}
	}
	d.say("\nThe client's address, as the backends saw it:")
	for _, address := range slices.Sorted(maps.Keys(clients)) {
		d.say("  %s, %d times", address, clients[address])
	}
}

func (d *demo) tellMuxes(before, after map[string]uint64, replies map[string]int) {
	d.say("\nWhat passed the muxes, and what went past them from host to client directly:")
	for _, mux := range d.lab.Of(netlab.Mux) {
		d.say("  %s: %5d packets forwarded; reply packets seen by it: %d",
			mux.Name, after[mux.Name]-before[mux.Name], replies[mux.Name])
	}
}

// tellCut tells what the client noticed of the cut.
func (d *demo) tellCut(results []load.Result, cutAt time.Time) {
	requests, failed, retried := 0, 0, 0
	var slowest time.Duration
	var last time.Time
	for _, r := range results {
		requests, failed, retried = requests+r.Requests, failed+r.Failed, retried+r.Retried
		slowest = max(slowest, r.Slowest)
		for _, f := range r.Failures {
			if f.Started.After(last) {
				last = f.Started
			}
		}
	}
	d.say("What the client noticed of it:")
	d.say("  %d requests: %d answered, %d failed; the slowest took %s", requests, requests-failed, failed, seconds(slowest))
	if last.IsZero() {
		d.say("  no attempt was lost")
		return
	}
	d.say("  %d attempts were lost and made again, all of them begun within %s after the cut", retried, seconds(last.Sub(cutAt)))
	d.say("  then BFD had told the router, and everything went by the other mux")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
}
