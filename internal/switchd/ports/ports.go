// Package ports watches the ports of a switch: what comes and goes by them, and what is at their other ends.
package ports

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/telemetry"
)

const (
	callTime = 5 * time.Second
	// keepTime is how long what was read stands in for what can't be read.
	keepTime = 10 * time.Second
)

// Watch reads ports from time to time.
type Watch struct {
	driver   hardware.Driver
	interval time.Duration
	changed  func() // a port went up or down, came or went
	log      *slog.Logger

	mu      sync.Mutex
	read    time.Time
	failure error
	ports   []port
	old     bool // nothing is told of what was read
	notes   []string
}

// port is a port, with what followed from reading it twice.
type port struct {
	hardware.Port

	received, sent uint64 // bytes in a second
	errors         uint64 // since the watch began
	changes        uint64 // of the link, as far as it was seen
}

// New returns a watch of a driver's ports.
func New(driver hardware.Driver, interval time.Duration, changed func(), log *slog.Logger) *Watch {
	return &Watch{driver: driver, interval: interval, changed: changed, log: log}
}

// Run reads until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (w *Watch) look(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	now := time.Now() // when counters were read, at the latest
	ports, err := w.driver.Ports(bounded)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		w.fail(err, now)
	case w.take(ports, now):
		w.changed()
	}
}

func (w *Watch) fail(err error, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == nil {
		w.log.Warn("ports are not read", "err", err)
	}
	if w.failure = err; now.Sub(w.read) >= keepTime {
		w.old, w.notes = true, nil
	}
}

// take takes what was read, and says whether it is news.
func (w *Watch) take(ports hardware.Ports, now time.Time) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := make(map[string]port, len(w.ports))
	for _, p := range w.ports {
		before[p.Name] = p
	}
	seconds := now.Sub(w.read).Seconds()
	next := make([]port, 0, len(ports.All))
	for _, p := range ports.All {
		was, known := before[p.Name]
		if known && !p.Up && p.Neighbour == "" { // LLDP forgets who was at the other end of a link that goes down
			p.Neighbour, p.NeighbourPort = was.Neighbour, was.NeighbourPort
		}
		n := port{Port: p}
		if n.changes = was.changes; known && was.Up != p.Up {
			n.changes++
		}
		if known && seconds > 0 {
			n.received = uint64(float64(since(was.Received, p.Received)) / seconds)
			n.sent = uint64(float64(since(was.Sent, p.Sent)) / seconds)
			n.errors = was.errors + since(was.Errors, p.Errors)
		}
		news = news || !known || was.Up != p.Up // not neighbours, who would set the pace of reports
		next = append(next, n)
	}
	news = news || w.old || len(next) != len(before)
	w.ports, w.old, w.notes, w.read, w.failure = next, false, ports.Warnings, now, nil
	return news
}

// since is how much a counter grew. One that is less than before began anew, at 0.
func since(before, now uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// told are the ports that are told of.
func (w *Watch) told() []port {
	if w.old {
		return nil
	}
	return w.ports
}

// Report is how the ports stand, with what an operator should know.
func (w *Watch) Report() (all []*weirv1.SwitchPort, warnings []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.told() {
		all = append(all, &weirv1.SwitchPort{
			Name: p.Name, Up: p.Up, MbitPerS: p.MbitPerS, Neighbour: p.Neighbour, NeighbourPort: p.NeighbourPort,
			ReceivedBytesPerS: p.received, SentBytesPerS: p.sent, Errors: p.errors, Changes: p.changes,
		})
	}
	warnings = append(warnings, w.notes...)
	if w.failure != nil {
		warnings = append(warnings, fmt.Sprintf("ports are not read: %v", w.failure))
	}
	return all, warnings
}

// Metrics are what a watch tells.
var Metrics = []telemetry.Metric{
	{Name: "weir_switch_port_up", Labels: []string{"port"}, Help: "1 while the port's link is up."},
	{Name: "weir_switch_port_neighbour", Labels: []string{"port"}, Help: "1 while LLDP says what is at the port's other end."},
	{Name: "weir_switch_port_speed_bytes", Labels: []string{"port"}, Help: "Bytes a second that the port can carry each way; 0: unknown."},
	{Name: "weir_switch_port_received_bytes_total", Labels: []string{"port"}, Help: "Bytes that came by the port, as the switch counts."},
	{Name: "weir_switch_port_sent_bytes_total", Labels: []string{"port"}, Help: "Bytes that went by the port, as the switch counts."},
	{Name: "weir_switch_port_errors_total", Labels: []string{"port"}, Help: "Frames with errors, both ways, and those dropped for want of room, since the daemon's start."},
	{Name: "weir_switch_port_changes_total", Labels: []string{"port"}, Help: "How often the port's link went up or down since the daemon's start."},
}

// Sample tells them.
func (w *Watch) Sample(to *telemetry.Sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.told() {
		telemetry.PutIf(to, "weir_switch_port_up", p.Up, p.Name)
		telemetry.PutIf(to, "weir_switch_port_neighbour", p.Neighbour != "", p.Name)
		telemetry.Put(to, "weir_switch_port_speed_bytes", p.MbitPerS*1e6/8, p.Name)
		telemetry.Put(to, "weir_switch_port_received_bytes_total", p.Received, p.Name)
		telemetry.Put(to, "weir_switch_port_sent_bytes_total", p.Sent, p.Name)
		telemetry.Put(to, "weir_switch_port_errors_total", p.errors, p.Name)
		telemetry.Put(to, "weir_switch_port_changes_total", p.changes, p.Name)
	}
}
