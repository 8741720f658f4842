package publish

import (
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

// SetBacklogs sends muxes the endpoints whose SYNs are to be answered as a backend's backlog is full: all of them. It is no
// part of the desired state, so it waits for no host and makes no generation.
func (h *Hub) SetBacklogs(all []model.EndpointBacklog) {
	messages := wire.BacklogsToProto(all)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.backlogs = messages
	for f := range h.muxes {
		f.schedule()
	}
}
