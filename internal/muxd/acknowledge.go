package muxd

import (
	"context"
	"sync/atomic"

	"github.com/weirlb/weir/internal/rpc"
)

// acknowledgements tell the manager at once which generation runs. A report, which says that too and has all counters,
// is sent instead if the manager does not hear it, or a generation was rejected.
type acknowledgements struct {
	config    Config
	tables    *tables
	reports   *reports
	to        rpc.Acknowledger
	wake      chan struct{} // holds at most one
	reconnect atomic.Bool   // the stream is another one, maybe with another manager
}

func newAcknowledgements(config Config, t *tables, r *reports) *acknowledgements {
	return &acknowledgements{
		config: config, tables: t, reports: r, wake: make(chan struct{}, 1),
		to: rpc.Acknowledger{Name: config.Name, Open: config.Manager.AcknowledgeMux},
	}
}

// trigger acknowledges the generation that runs.
func (a *acknowledgements) trigger() { wake(a.wake) }

func (a *acknowledgements) run(ctx context.Context) error {
	defer a.to.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		}
		if a.reconnect.Swap(false) {
			a.to.Close()
		}
		generation, ahead, rejected := a.tables.current()
		if rejected != nil {
			a.reports.trigger()
			continue
		}
		if err := a.to.Send(ctx, uint64(generation), uint64(ahead)); err != nil && ctx.Err() == nil {
			a.config.Log.Debug("acknowledge to the manager", "err", err)
			a.reports.trigger()
		}
	}
}
