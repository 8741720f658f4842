package agentd

import (
	"context"
	"time"
)

// keepAliveInterval is the time between two scans for silent sessions: short enough for several attempts within
// session.CookieBound(session.DefaultCookieTick).
const keepAliveInterval = time.Minute

// keepAlive sends keepalive probes to workloads that have been silent for long.
func (a *Agent) keepAlive(ctx context.Context) error {
	ticker := time.NewTicker(a.config.KeepAliveInterval)
	defer ticker.Stop()
	failure := ""
	for {
		asked, err := a.config.KeepAlive()
		a.asked.Add(uint64(asked))
		a.config.Log.Debug("kept silent sessions alive", "live", asked)
		if err != nil && err.Error() != failure {
			a.config.Log.Warn("can't keep silent sessions alive", "err", err)
		}
		failure = ""
		if err != nil {
			a.unasked.Add(1)
			failure = err.Error()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
