package publish

import (
	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync/publish/progress"
	"github.com/weirlb/weir/internal/store"
)

// AckHost records that a host runs a generation, or rejected it.
func (h *Hub) AckHost(name string, generation model.Generation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	waited := false
	for f := range h.hosts[name] {
		f.acked = max(f.acked, generation)
		waited = h.gate.ack(f) || waited
	}
	if waited {
		h.recheck.Set()
	}
}

// AckMux records the generation that a mux runs, and the newest that it has processed, if that is not 0: it rejected
// it, or runs it except for prefix lists that are still being written. It says whether the mux has a stream here.
func (h *Hub) AckMux(name string, runs, answered model.Generation) (here bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.muxes[name] {
		f.ack(runs, answered, h.now())
		here = true
	}
	if here {
		h.muxAnswered(name)
	}
	return here
}

// muxAnswered reports the progress of a mux to the other managers, and to callers of Await. The gate does not depend on
// it, and is not checked. Its cost does not grow with the number of muxes: each acknowledges each generation.
func (h *Hub) muxAnswered(name string) {
	if h.state == nil {
		return
	}
	at, generation, isAwaited := h.muxes.progress(name)
	if isAwaited {
		h.here.Set(name, generation)
	} else {
		h.here.Remove(name)
	}
	least, _ := h.here.Least()
	h.setMux(name, at, least)
	h.snat.confirm(h.updateFloor(h.state, h.pool, name), h.hosts)
}

// SetPeerProgress records the progress of another manager's nodes; nil: its stream has ended. If the gate holds
// something back, progress of hosts has it checked again.
func (h *Hub) SetPeerProgress(manager string, message *weirv1.FollowProgressResponse) {
	var said *progress.Nodes
	if message != nil {
		read := progress.FromProto(message)
		said = &read
	}
	hosts, muxes := h.setOther(manager, said)
	h.mu.Lock()
	defer h.mu.Unlock()
	if hosts && len(h.held) > 0 {
		h.recheck.Set()
		return
	}
	if h.state != nil {
		h.snat.confirm(h.updateFloor(h.state, h.pool, muxes...), h.hosts)
	}
}

// ReportsToAllManagers says whether every other manager has a stream of the progress of the nodes here.
func (h *Hub) ReportsToAllManagers(s *store.State) bool {
	return h.allManagersListen(s, h.store.Name())
}
