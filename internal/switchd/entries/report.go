package entries

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/model"
	limits "github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/telemetry"
)

// Report is how the switch stands.
func (c *Controller) Report() (running model.Generation, refused []*weirv1.SwitchRefusal, status *weirv1.SwitchStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	table := func(t hardware.Table) *weirv1.SwitchTable { return &weirv1.SwitchTable{Size: t.Size, Used: t.Used} }
	status = &weirv1.SwitchStatus{
		Driver: c.able.Driver, Hosts: table(c.able.Hosts), Ecmp: table(c.able.ECMP), Tunnels: table(c.able.Tunnels), Members: c.able.MaxMembers, Weights: c.able.Weights, Tips: c.able.TIPs,
		Programmed: uint32(len(c.good)), Announced: uint32(len(c.announced)), Differences: c.differences, Warnings: c.warnings(time.Now()),
	}
	unrouted := unroutedOf(c)
	status.UnroutedMore = len(unrouted) > limits.MaxUnrouted
	status.Unrouted = compile.AddressTexts(unrouted[:min(len(unrouted), limits.MaxUnrouted)])
	return c.running, c.refused(), status
}

// refused are the VIPs that the switch does not hold as it is to, and those that it holds and is not to.
func (c *Controller) refused() (list []*weirv1.SwitchRefusal) {
	add := func(vip netip.Addr) {
		f, failed := c.failures[vip]
		if c.trouble.wait > 0 && !failed {
			f = c.trouble
		} else if !failed {
			return
		}
		list = append(list, &weirv1.SwitchRefusal{
			Vip: vip.String(), Table: string(f.refusal.Table), Need: f.refusal.Need, Free: f.refusal.Free, Reason: f.refusal.Reason,
		})
	}
	for _, vip := range slices.SortedFunc(maps.Keys(c.told), netip.Addr.Compare) {
		if !c.held[vip].Equal(c.entry(vip)) && !onlyLacks(c, vip) {
			add(vip)
		}
	}
	for _, vip := range slices.SortedFunc(maps.Keys(c.held), netip.Addr.Compare) {
		if _, told := c.told[vip]; !told && c.snapshot {
			add(vip)
		}
	}
	return list
}

// warnings are for operators, one line each.
func (c *Controller) warnings(now time.Time) (lines []string) {
	if c.trouble.wait > 0 {
		lines = append(lines, c.trouble.refusal.Reason)
	}
	if now.Sub(c.read) > maxAge {
		lines = append(lines, fmt.Sprintf("HardwareStuck: the switch was not read for %s: no VIP is announced", maxAge))
	}
	if len(c.told) > 0 && c.leaseOver(now) {
		lines = append(lines, fmt.Sprintf("no manager was heard for %s: no VIP is announced", c.config.Lease))
	}
	if n := len(c.unreachable); n > 0 {
		first := slices.MinFunc(slices.Collect(maps.Keys(c.unreachable)), netip.Addr.Compare)
		lines = append(lines, fmt.Sprintf("%d tunnels have no route, %s first: other members get their packets, and a VIP that has none is not announced", n, first))
	}
	if n, first := lacking(c); n > 0 {
		refusal := c.failures[first].refusal
		lines = append(lines, fmt.Sprintf("%d entries still have members without a route, as the switch refuses to take these out, %s first: %s",
			n, first, refusal.Error()))
	}
	if c.keeping != nil {
		lines = append(lines, c.keeping.Error())
	}
	if c.announcing != nil {
		lines = append(lines, c.announcing.Error())
	}
	return append(lines, c.able.Warnings...)
}

// lacking are the entries that the switch refuses to have without members that have no route: how many, and the first of them.
func lacking(c *Controller) (n int, first netip.Addr) {
	for vip := range c.failures {
		if !onlyLacks(c, vip) {
			continue
		}
		if n++; n == 1 || vip.Less(first) {
			first = vip
		}
	}
	return n, first
}

// Ready says what is missing until the switch is as it is to be.
func (c *Controller) Ready() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.trouble.wait > 0:
		return "", errors.New(c.trouble.refusal.Reason)
	case c.read.IsZero():
		return "", errors.New("the switch was not read yet")
	}
	return fmt.Sprintf("generation %d runs, %d of %d entries are held, %d announced", c.running, len(c.good), len(c.told), len(c.announced)), nil
}

// Metrics are what a controller tells.
var Metrics = []telemetry.Metric{
	{Name: "weir_switch_generation", Help: "Generation that the switch is at, but for what it refused."},
	{Name: "weir_switch_entries", Help: "Entries: told by the manager, held by the switch as told, refused, announced, withdrawn for want of a route (unrouted).", Labels: []string{"state"}},
	{Name: "weir_switch_table_rows", Help: "Rows of a table in use.", Labels: []string{"table"}},
	{Name: "weir_switch_table_capacity", Help: "Rows that a table has room for.", Labels: []string{"table"}},
	{Name: "weir_switch_differences_total", Help: "Entries that were read back other than they were programmed."},
	{Name: "weir_switch_reboots_total", Help: "Times that the switch lost its tables."},
	{Name: "weir_switch_stuck", Help: "1 while the switch does not do what its driver asks."},
	{Name: "weir_switch_lease_over", Help: "1 while nothing is announced because no manager was heard for too long."},
	{Name: "weir_switch_read_timestamp_seconds", Help: "When the switch was last read back; 0: never."},
	{Name: "weir_switch_warnings", Help: "Warnings that the daemon reports, but for those of BGP."},
}

// NewDurations makes the metric of how long the driver takes.
func NewDurations() *prometheus.HistogramVec {
	return telemetry.Seconds("weir_switch_program_duration_seconds", "Time of the driver to program an entry, by result: taken, refused, stuck, failed.", "result")
}

// Sample tells them.
func (c *Controller) Sample(to *telemetry.Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	telemetry.Put(to, "weir_switch_generation", uint64(c.running))
	telemetry.Put(to, "weir_switch_entries", len(c.told), "told")
	telemetry.Put(to, "weir_switch_entries", len(c.good), "held")
	telemetry.Put(to, "weir_switch_entries", len(c.refused()), "refused")
	telemetry.Put(to, "weir_switch_entries", len(c.announced), "announced")
	telemetry.Put(to, "weir_switch_entries", len(unroutedOf(c)), "unrouted")
	for _, t := range []struct {
		name  hardware.TableName
		table hardware.Table
	}{{hardware.Hosts, c.able.Hosts}, {hardware.ECMP, c.able.ECMP}, {hardware.Tunnels, c.able.Tunnels}} {
		telemetry.Put(to, "weir_switch_table_rows", t.table.Used, string(t.name))
		telemetry.Put(to, "weir_switch_table_capacity", t.table.Size, string(t.name))
	}
	telemetry.Put(to, "weir_switch_differences_total", c.differences)
	telemetry.Put(to, "weir_switch_reboots_total", c.reboots)
	telemetry.PutIf(to, "weir_switch_stuck", c.trouble.wait > 0)
	telemetry.PutIf(to, "weir_switch_lease_over", len(c.told) > 0 && c.leaseOver(now))
	seconds := 0.0
	if !c.read.IsZero() {
		seconds = float64(c.read.UnixMilli()) / 1000
	}
	telemetry.Put(to, "weir_switch_read_timestamp_seconds", seconds)
	telemetry.Put(to, "weir_switch_warnings", len(c.warnings(now)))
}
