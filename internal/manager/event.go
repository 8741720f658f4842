package manager

import (
	"context"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// ListEvents lists events, the latest last.
func (m *Manager) ListEvents(context.Context, *weirv1.ListEventsRequest) (*weirv1.ListEventsResponse, error) {
	return nil, unwritten("ListEvents")
}

// WatchEvents streams events.
func (m *Manager) WatchEvents(context.Context, *weirv1.WatchEventsRequest, *connect.ServerStream[weirv1.WatchEventsResponse]) error {
	return unwritten("WatchEvents")
}
