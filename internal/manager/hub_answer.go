package manager

import "github.com/weirlb/weir/internal/model"

// ackHost notes that a host runs a generation, or refused it.
func (h *hub) ackHost(name string, generation model.Generation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	waited := false
	for f := range h.hosts[name] {
		f.acked = max(f.acked, generation)
		waited = h.gate.ack(f) || waited
	}
	if waited {
		h.look()
	}
}

// ackMux notes that a mux runs a generation, and refused another one, if that is not 0. It says whether the mux has a
// stream here.
func (h *hub) ackMux(name string, runs, refused model.Generation) (here bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.muxes {
		if f.mux == name {
			f.ack(runs, refused, h.now())
			here = true
		}
	}
	h.answered()
	return here
}

// answered tells who waits for it how far muxes are, here and elsewhere. Which generation they may have does not depend
// on that, so that it need not be looked at.
func (h *hub) answered() {
	if h.state == nil {
		return
	}
	h.tellManagers(h.state, h.ready)
	h.confirm(h.progress.settle(h.state, h.pool))
}

// heard takes over what another manager says of its nodes; nil: it says nothing any more. How far its hosts are matters
// while something waits for hosts.
func (h *hub) heard(manager string, said *nodesProgress) {
	hosts := h.progress.told(manager, said)
	h.mu.Lock()
	defer h.mu.Unlock()
	if hosts && len(h.held) > 0 {
		h.look()
		return
	}
	h.answered()
}
