package publish

import (
	"context"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// AckHost notes that a host runs a generation, or refused it.
func (h *Hub) AckHost(name string, generation model.Generation) {
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

// AckMux notes that a mux runs a generation, and answered a later one, if that is not 0: it refused it, or runs it but for what waits for long prefix
// lists. It says whether the mux has a stream here.
func (h *Hub) AckMux(name string, runs, answered model.Generation) (here bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.muxes {
		if f.mux == name {
			f.ack(runs, answered, h.now())
			here = true
		}
	}
	h.answered()
	return here
}

// answered tells who waits for it how far muxes are, here and elsewhere. Which generation they may have does not depend
// on that, so that it need not be looked at.
func (h *Hub) answered() {
	if h.state == nil {
		return
	}
	h.tellManagers(h.state, h.ready)
	h.confirm(h.progress.settle(h.state, h.pool))
}

// Heard takes over what another manager says of its nodes; nil: it says nothing any more. How far its hosts are matters
// while something waits for hosts.
func (h *Hub) Heard(manager string, message *weirv1.FollowProgressResponse) {
	var said *nodesProgress
	if message != nil {
		read := progressFromProto(message)
		said = &read
	}
	hosts := h.progress.told(manager, said)
	h.mu.Lock()
	defer h.mu.Unlock()
	if hosts && len(h.held) > 0 {
		h.look()
		return
	}
	h.answered()
}

// Show is s with what muxes said since the store was told.
func (h *Hub) Show(s *store.State) *store.State { return h.progress.show(s) }

// Await returns when all healthy muxes have answered a generation, those of other managers too.
func (h *Hub) Await(ctx context.Context, generation model.Generation) error {
	return h.progress.await(ctx, generation)
}

// Answered is what all healthy muxes have answered.
func (h *Hub) Answered() model.Generation { return h.progress.reached() }

// Holder is the manager, if it is another one, that has told of a mux's stream.
func (h *Hub) Holder(mux string) (manager string, there bool) { return h.progress.holder(mux) }

// TellsAll says whether every other manager is told how far the nodes here are.
func (h *Hub) TellsAll(s *store.State) bool { return h.progress.allListen(s, h.store.Name()) }
