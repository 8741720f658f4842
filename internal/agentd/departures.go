package agentd

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/model"
)

const (
	// leaveTime is how long a workload may stay on the host that no backend names any more, and still be one that
	// moves.
	leaveTime = 10 * time.Minute
	// leaveLook is how often such workloads are looked for.
	leaveLook = time.Second / 2
)

// askTimes are when clients of a workload that has left are asked to speak: its new host may not know of it yet.
var askTimes = []time.Duration{time.Second / 2, 3 * time.Second / 2, 7 * time.Second / 2, 15 * time.Second / 2}

// asking are the clients of workloads that have left.
type asking struct {
	clients interface{ Ask() error }
	due     []time.Time
}

// departures look after the connections of workloads that leave the host, and take them along.
type departures struct {
	log    *slog.Logger
	locate func([]netip.Addr) (interfaces map[netip.Addr]int, missing map[netip.Addr]string, err error)
	depart func(workloads map[netip.Addr]bool) (agent.Departed, error)
	now    func() time.Time

	mu      sync.Mutex
	served  map[netip.Addr]bool      // workloads that are backends
	leaving map[netip.Addr]time.Time // those that were, and are still here: until when
	asked   []asking
}

// set takes over the host's backends.
func (d *departures) set(backends []model.HostBackend) {
	d.mu.Lock()
	defer d.mu.Unlock()
	served := make(map[netip.Addr]bool, len(backends))
	for _, b := range backends {
		served[b.Backend.Addr()] = true
		delete(d.leaving, b.Backend.Addr())
	}
	for workload := range d.served {
		if !served[workload] {
			d.leaving[workload] = d.now().Add(leaveTime)
		}
	}
	d.served = served
}

// look ends the sessions of workloads that have left by now, and asks clients whose time has come.
func (d *departures) look() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	gone, err := d.gone(now)
	if err != nil {
		return err
	}
	if len(gone) > 0 {
		departed, err := d.depart(gone)
		if err != nil {
			return err // they are looked for again
		}
		maps.DeleteFunc(d.leaving, func(workload netip.Addr, _ time.Time) bool { return gone[workload] })
		d.log.Info("workloads have left", "backends", len(gone), "live", departed.Len())
		if departed.Len() > 0 {
			d.ask(departed, now)
		}
	}
	for i, a := range d.asked {
		if !now.Before(a.due[0]) {
			d.asked[i].due = a.due[1:]
			err = errors.Join(err, a.clients.Ask())
		}
	}
	d.asked = slices.DeleteFunc(d.asked, func(a asking) bool { return len(a.due) == 0 })
	return err
}

// ask has clients asked from now on.
func (d *departures) ask(clients interface{ Ask() error }, now time.Time) {
	due := make([]time.Time, 0, len(askTimes))
	for _, after := range askTimes {
		due = append(due, now.Add(after))
	}
	d.asked = append(d.asked, asking{clients: clients, due: due})
}

// gone are the workloads that were to leave, and have.
func (d *departures) gone(now time.Time) (map[netip.Addr]bool, error) {
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

// run looks until ctx ends.
func (d *departures) run(ctx context.Context) error {
	ticker := time.NewTicker(leaveLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := d.look(); err != nil {
			d.log.Warn("can't look after connections of workloads that left", "err", err)
		}
	}
}
