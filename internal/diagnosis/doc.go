// Package diagnosis serves the calls by which operators ask what becomes of a flow: Explain from the tables of the
// State, ExplainPacket, Capture and Observe as tasks that muxes do and answer, ListConnections as those of hosts.
//
// Invariant: a task is asked of the manager that holds the node's stream; another one hands the call on to it.
package diagnosis

import (
	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// Service serves Explain, ExplainPacket, Capture, Observe, ListConnections, and the nodes' AnswerTask.
type Service struct {
	Name            string // of this manager
	Store           *store.Store
	StreamOwner     func(mux string) (manager string, there bool) // of the mux's stream, if it is another manager
	Peer            func(address string) (*rpc.Client, error)     // another manager
	BackendStatuses func(*store.State, model.VIP, model.Endpoint) []*weirv1.BackendStatus
	Reported        func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus) // the newest that a node reported

	tasks *tasks
}

// New makes a service of s, which has no tasks yet.
func New(s Service) *Service {
	s.tasks = newTasks()
	return &s
}

// OpenTasks begins the tasks of a node's stream; the caller ends them with the stream.
func (m *Service) OpenTasks(node string) (queue <-chan *weirv1.NodeTask, ended func()) {
	return m.tasks.open(node)
}
