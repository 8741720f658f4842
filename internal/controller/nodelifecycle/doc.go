// Package nodelifecycle takes the backends of hosts that died out of the buckets, while a manager leads.
//
// Invariant: when most hosts are silent it is the manager that is cut off, and none is taken out.
package nodelifecycle

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlb/weir/internal/store"
)

// Controller watches the streams of hosts.
type Controller struct {
	Store   *store.Store
	Silence time.Duration    // how long a host may be silent
	Ignored prometheus.Gauge // 1 while most hosts are silent
	Now     func() time.Time
	Log     *slog.Logger
}
