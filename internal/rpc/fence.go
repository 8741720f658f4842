package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// fence keeps the highest epoch and generation that a node has seen, of whichever manager, and refuses
// what is older: a manager that was frozen for minutes sends what is long past. It stands in the client,
// so that no daemon can forget it, and its memory outlives the program. Another cluster counts anew.
type fence struct {
	mu     sync.Mutex
	seen   seen
	memory *memory // nil: it ends with the program
}

// newFence goes on from what the memory in a data directory holds; without a directory there is none.
func newFence(dataDir string, log *slog.Logger) *fence {
	f := &fence{}
	if dataDir != "" {
		f.memory, f.seen = recall(dataDir, log)
	}
	return f
}

// StaleError says that a manager is behind what the node has seen.
type StaleError struct{ reason string }

func (e *StaleError) Error() string { return e.reason + ": this manager is behind, going to another" }

// stamped is a message that says as of when it is.
type stamped interface {
	GetCluster() uint64
	GetEpoch() uint64
	GetGeneration() uint64
}

// pass takes over what a message says, or refuses it. An epoch of 0 is one that the manager does not know. A message
// without a cluster carries no state, but tasks or chunks of prefix lists alone: it passes.
func (f *fence) pass(message stamped) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	cluster, epoch, generation := message.GetCluster(), model.Epoch(message.GetEpoch()), model.Generation(message.GetGeneration())
	next := seen{cluster, max(f.seen.epoch, epoch), generation}
	switch {
	case cluster == 0:
		return nil
	case cluster != f.seen.cluster:
		next.epoch = epoch
	case epoch != 0 && epoch < f.seen.epoch:
		return &StaleError{fmt.Sprintf("refuse epoch %d, epoch %d was seen", epoch, f.seen.epoch)}
	case generation < f.seen.generation:
		return &StaleError{fmt.Sprintf("refuse generation %d, generation %d was seen", generation, f.seen.generation)}
	}
	if next != f.seen && f.memory != nil {
		f.memory.save(next) // before the node acts on it
	}
	f.seen = next
	return nil
}

// stamp writes the highest that was seen into a request of a node.
func (f *fence) stamp(request any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r := request.(type) {
	case *weirv1.SyncMuxRequest:
		r.Cluster, r.Epoch, r.Generation = f.seen.cluster, uint64(f.seen.epoch), uint64(f.seen.generation)
	case *weirv1.SyncHostRequest:
		r.Cluster, r.Epoch, r.Generation = f.seen.cluster, uint64(f.seen.epoch), uint64(f.seen.generation)
	case *weirv1.SyncSwitchRequest:
		r.Cluster, r.Epoch, r.Generation = f.seen.cluster, uint64(f.seen.epoch), uint64(f.seen.generation)
	case *weirv1.ReportMuxRequest:
		r.Epoch = uint64(f.seen.epoch)
	case *weirv1.ReportHostRequest:
		r.Epoch = uint64(f.seen.epoch)
	case *weirv1.ReportSwitchRequest:
		r.Epoch = uint64(f.seen.epoch)
	}
}

// fencing has a fence look at all that a client sends and receives. A stream that was refused, or that a
// manager ended because it is behind, takes its connection with it: the next one is to another manager.
type fencing struct {
	fence *fence
	leave func()
}

// WrapUnary stamps reports.
func (f fencing) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		f.fence.stamp(request.Any())
		return next(ctx, request)
	}
}

// WrapStreamingClient stamps requests and checks what streams bring.
func (f fencing) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		return &fencedConn{StreamingClientConn: next(ctx, spec), fencing: f}
	}
}

// WrapStreamingHandler is for servers.
func (fencing) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

type fencedConn struct {
	connect.StreamingClientConn
	fencing
}

func (c *fencedConn) Send(message any) error {
	c.fence.stamp(message)
	return c.StreamingClientConn.Send(message)
}

func (c *fencedConn) Receive(message any) error {
	err := c.StreamingClientConn.Receive(message)
	if _, behind := retryIn(err); behind {
		c.leave()
	}
	if s, ok := message.(stamped); ok && err == nil {
		if err = c.fence.pass(s); err != nil {
			c.leave()
		}
	}
	return err
}
