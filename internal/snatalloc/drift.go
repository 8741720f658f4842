package snatalloc

import (
	"fmt"
	"sync"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/wire"
)

// Where an audit finds differences.
const (
	faultStore = "manager"
	faultMux   = "mux"
	faultHost  = "host"
)

// driftDetector counts reports in which a node's tables differ from the manager's. After the second one in a row the
// node gets a snapshot: a single one may have been overtaken by an update.
type driftDetector struct {
	mu *sync.Mutex
	of map[string]int
}

func newDriftDetector() driftDetector { return driftDetector{mu: &sync.Mutex{}, of: map[string]int{}} }

// observe records whether a node's tables differ, and says whether it has to get a snapshot.
func (s driftDetector) observe(node string, differ bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !differ {
		delete(s.of, node)
		return false
	}
	if s.of[node]++; s.of[node] < 2 {
		return false
	}
	delete(s.of, node)
	return true
}

// AuditMux compares the digest of a mux's source NAT with that of what it was sent.
func (a *Allocator) AuditMux(mux string, said *weirv1.MuxSNATStatus) {
	if said == nil {
		return
	}
	ranges, digest, known := a.Hub.DigestAt(model.Generation(said.GetGeneration()))
	if !known {
		return
	}
	differ := digest != said.GetDigest() || uint64(ranges) != said.GetRanges()
	if !a.drift.observe(mux, differ) {
		return
	}
	if !a.mayResend(mux) {
		return
	}
	a.Hub.Resend(mux)
	a.fault(faultMux, eventlog.Event{
		Kind: string(model.RoleMux), Object: mux, Reason: reason.PortsDiffer,
		Message: fmt.Sprintf("its table of source NAT holds %d ranges at generation %d, other ones than the %d that it was told: it gets all tables anew",
			said.GetRanges(), said.GetGeneration(), ranges),
	})
}

// Snapshots that a node gets for what it says of its tables: so many at once, and then one in so many seconds.
const (
	resendsAtOnce = 5
	resendsRate   = 1.0 / 30
)

// mayResend says whether a node may have all of its tables once more: one that lies would have them each second.
func (a *Allocator) mayResend(node string) bool {
	return a.Rates.Take("resend "+node, resendsRate, resendsAtOnce, 1, a.Now()) == 0
}

// AuditHost compares what a host's tables hold of SNAT with the store, where the host says that it knows what was
// written last.
func (a *Allocator) AuditHost(host string, said []*weirv1.SNATUse) {
	s := a.Store.State()
	if s.Restored.Pending() {
		return // hosts know more than the store
	}
	var wrong []string
	for _, use := range said {
		key, err := wire.SNATKeyFromProto(&weirv1.SNATKey{Vip: use.GetVip(), Address: use.GetAddress()})
		if err != nil {
			continue
		}
		_, w, there := s.SNATClientWithVIP(key)
		h := s.Ports.At(key)
		if !there || w.Host != host || use.GetWritten() != uint64(s.PortsWritten.At(key)) {
			continue // it will be told, or was told more than this manager knows
		}
		if use.GetDigest() != snat.Digest(key.VIP, w.TunnelAddress(), h.Ranges...) {
			wrong = append(wrong, fmt.Sprintf("%s has %d ranges, and %d were given", key, use.GetRanges(), len(h.Ranges)))
		}
	}
	if !a.drift.observe(host, len(wrong) > 0) {
		return
	}
	if !a.mayResend(host) {
		return
	}
	a.Hub.Resend(host)
	a.fault(faultHost, eventlog.Event{
		Kind: string(model.RoleHost), Object: host, Reason: reason.PortsDiffer,
		Message: fmt.Sprintf("its tables of source NAT are not what it was told (%s): it gets all of it anew", wrong[0]),
	})
}

func (a *Allocator) fault(where string, e eventlog.Event) {
	e.Warning = true
	a.Metrics.faults.WithLabelValues(where).Inc()
	a.Log.Warn("source NAT: tables differ, mending them", "node", e.Object, "reason", e.Message)
	a.Events.Record(e)
}
