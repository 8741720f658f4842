package manager

import (
	"context"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// WatchVIPs streams VIPs as they change.
func (m *Manager) WatchVIPs(context.Context, *weirv1.WatchVIPsRequest, *connect.ServerStream[weirv1.WatchVIPsResponse]) error {
	return unwritten("WatchVIPs")
}

// WatchVIPs is served to REST by handleREST.
func (restServer) WatchVIPs(*weirv1.WatchVIPsRequest, weirv1.WeirService_WatchVIPsServer) error {
	return unwritten("WatchVIPs")
}

// WatchEvents is served to REST by handleREST.
func (restServer) WatchEvents(*weirv1.WatchEventsRequest, weirv1.WeirService_WatchEventsServer) error {
	return unwritten("WatchEvents")
}
