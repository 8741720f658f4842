package forwarding

import (
	"context"
	"sync/atomic"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/mux/nat"
	"github.com/weirlb/weir/internal/datapath/overlay/reset"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/wake"
)

// natSweepInterval is how often sessions that are over are freed, and idle ones ended.
const natSweepInterval = time.Second

// natSweep is what sweeps have found.
type natSweep struct {
	last atomic.Pointer[nat.Swept] // nil: there was none yet
	idle atomic.Uint64             // sessions that were ended
}

// SweepNAT sweeps sessions of full NAT until ctx ends. Without a NAT prefix there are none.
func (s *State) SweepNAT(ctx context.Context) error {
	if !s.networks.full.isOn() {
		return nil
	}
	var sender reset.Sender
	defer sender.Close()
	for {
		wake.After(ctx, natSweepInterval)
		if ctx.Err() != nil {
			return nil
		}
		swept, err := s.config.Datapath.SweepNAT(nat.Now(), sender.Send)
		if err != nil {
			s.log.Warn("sweep sessions of full NAT", "err", err)
		}
		s.swept.last.Store(&swept)
		s.swept.idle.Add(uint64(swept.Idle))
	}
}

// NATSessions are what tenants of networks have of the sessions of full NAT.
func (s *State) NATSessions() ([]*weirv1.TenantRows, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, _, err := s.networks.full.usage()
	return all, err
}

func (n *natSweep) sample(to *telemetry.Sample) {
	last := n.last.Load()
	if last == nil {
		return
	}
	telemetry.Put(to, "weir_mux_nat_sessions", last.Open, "open")
	telemetry.Put(to, "weir_mux_nat_sessions", last.HalfOpen, "half-open")
	telemetry.Put(to, "weir_mux_nat_sessions", last.Over, "over")
	telemetry.Put(to, "weir_mux_nat_sessions_idle_total", n.idle.Load())
}
