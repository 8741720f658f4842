package evacuation

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model"
)

const (
	// evacuateWithin bounds the time from the removal of a workload's last backend to its disappearance from the host, for
	// its sessions to be evacuated. After that it counts as one that stays.
	evacuateWithin = 10 * time.Minute
	// evacuateInterval is the time between two checks for workloads that have disappeared.
	evacuateInterval = time.Second / 2
)

// probeTimes are when clients of a departed workload get a keepalive probe. There are several, as its new host may not
// have the backend yet.
var probeTimes = []time.Duration{time.Second / 2, 3 * time.Second / 2, 7 * time.Second / 2, 15 * time.Second / 2}

// clientProbes are keepalive probes that are due to clients of departed workloads.
type clientProbes struct {
	clients interface{ Ask() error }
	due     []time.Time
}

// Departures evacuate the sessions of workloads that move to another host, so that the connections go on there.
type Departures struct {
	log    *slog.Logger
	locate func([]netip.Addr) (interfaces map[netip.Addr]int, missing map[netip.Addr]string, err error)
	depart func(workloads map[netip.Addr]bool) (session.EvacuatedSessions, error)
	now    func() time.Time

	mu      sync.Mutex
	served  map[netip.Addr]bool      // workloads that are backends
	leaving map[netip.Addr]time.Time // by when they must have disappeared to be evacuated
	probes  []clientProbes
}

// New returns Departures of a host with backends. locate says which addresses are missing on it, depart evacuates the
// sessions of workloads.
func New(
	log *slog.Logger, backends []model.HostBackend,
	locate func([]netip.Addr) (interfaces map[netip.Addr]int, missing map[netip.Addr]string, err error),
	depart func(workloads map[netip.Addr]bool) (session.EvacuatedSessions, error),
) *Departures {
	d := &Departures{log: log, locate: locate, depart: depart, now: time.Now, leaving: make(map[netip.Addr]time.Time)}
	d.Set(backends)
	return d
}

// Set replaces the host's backends.
func (d *Departures) Set(backends []model.HostBackend) {
	d.mu.Lock()
	defer d.mu.Unlock()
	served := make(map[netip.Addr]bool, len(backends))
	for _, b := range backends {
		served[b.Backend.Addr()] = true
		delete(d.leaving, b.Backend.Addr())
	}
	for workload := range d.served {
		if !served[workload] {
			d.leaving[workload] = d.now().Add(evacuateWithin)
		}
	}
	d.served = served
}

// evacuate ends the sessions of workloads that have disappeared, and sends the client probes that are due.
func (d *Departures) evacuate() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	gone, err := d.departedWorkloads(now)
	if err != nil {
		return err
	}
	if len(gone) > 0 {
		departed, err := d.depart(gone)
		if err != nil {
			return err // the next round finds them again
		}
		maps.DeleteFunc(d.leaving, func(workload netip.Addr, _ time.Time) bool { return gone[workload] })
		d.log.Info("workloads have left", "backends", len(gone), "live", departed.Len())
		if departed.Len() > 0 {
			d.scheduleProbes(departed, now)
		}
	}
	for i, a := range d.probes {
		if !now.Before(a.due[0]) {
			d.probes[i].due = a.due[1:]
			err = errors.Join(err, a.clients.Ask())
		}
	}
	d.probes = slices.DeleteFunc(d.probes, func(a clientProbes) bool { return len(a.due) == 0 })
	return err
}

// scheduleProbes schedules the probes to the clients.
func (d *Departures) scheduleProbes(clients interface{ Ask() error }, now time.Time) {
	due := make([]time.Time, 0, len(probeTimes))
	for _, after := range probeTimes {
		due = append(due, now.Add(after))
	}
	d.probes = append(d.probes, clientProbes{clients: clients, due: due})
}

// departedWorkloads are the workloads without a backend that have disappeared from the host.
func (d *Departures) departedWorkloads(now time.Time) (map[netip.Addr]bool, error) {
	all := make([]netip.Addr, 0, len(d.leaving))
	for workload, until := range d.leaving {
		if now.After(until) {
			delete(d.leaving, workload)
			continue
		}
		all = append(all, workload)
	}
	if len(all) == 0 {
		return nil, nil
	}
	_, missing, err := d.locate(all)
	gone := make(map[netip.Addr]bool, len(missing))
	for workload := range missing {
		gone[workload] = true
	}
	return gone, err
}

// Run evacuates sessions until ctx ends.
func (d *Departures) Run(ctx context.Context) error {
	ticker := time.NewTicker(evacuateInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := d.evacuate(); err != nil {
			d.log.Warn("can't evacuate sessions of departed workloads", "err", err)
		}
	}
}
