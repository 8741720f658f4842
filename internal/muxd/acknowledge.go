package muxd

import (
	"context"
	"sync/atomic"

	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wake"
)

// acknowledgements tell the manager at once which generation runs. A report, which says that too and has all counters,
// is sent instead if the manager does not hear it, or a generation was rejected.
type acknowledgements struct {
	mux       *Mux
	to        rpc.Acknowledger
	wake      wake.Signal // a generation runs
	reconnect atomic.Bool // the stream is another one, maybe with another manager
}

func newAcknowledgements(m *Mux) *acknowledgements {
	return &acknowledgements{
		mux: m, wake: wake.New(), to: rpc.Acknowledger{Name: m.config.Name, Open: m.config.Manager.AcknowledgeMux},
	}
}

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
		generation, ahead, rejected := a.mux.state.Generations()
		if rejected != nil {
			a.mux.reports.wake.Set()
			continue
		}
		if err := a.to.Send(ctx, uint64(generation), uint64(ahead)); err != nil && ctx.Err() == nil {
			a.mux.config.Log.Debug("acknowledge to the manager", "err", err)
			a.mux.reports.wake.Set()
		}
	}
}
