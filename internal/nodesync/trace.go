package nodesync

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/telemetry"
)

// traceSending begins the spans of a generation that is sent to a node, which last until the node acknowledges it, and returns
// their names for the node. They belong to the traces of the changes after one generation up to another. A host is sent only
// what concerns it, and at once: its trace is that of the last generation.
func (n *Service) traceSending(node model.Node, after, to model.Generation) []string {
	var parents []string
	if after != 0 && n.Telemetry.Tracing() {
		parents = n.Store.State().TracesIn(after, to)
	}
	_, names, ended := n.Telemetry.Follow(context.Background(), "sync", time.Time{}, parents,
		attribute.String("weir.node", node.Name), attribute.String("weir.role", string(node.Role)), attribute.Int64("weir.generation", int64(to)))
	n.unacked.add(node.Name, node.Role, to, ended)
	return names
}

// TracePublished returns the callback of publish.New: it traces how long a State that is newer than a generation waited for the
// hosts before muxes were sent it.
func TracePublished(t *telemetry.Telemetry) func(after model.Generation, s *store.State, since time.Time) {
	return func(after model.Generation, s *store.State, since time.Time) {
		if !t.Tracing() || after == 0 { // the first State of this manager: nobody waited for it
			return
		}
		_, _, ended := t.Follow(context.Background(), "publish", since, s.TracesIn(after, s.Generation))
		ended(nil)
	}
}
