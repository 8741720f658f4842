package diagnosis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// Bounds of tasks.
const (
	taskTime    = 10 * time.Second // of an explanation, and between a capture's end and its last answer
	taskBacklog = 16               // tasks that a node has not taken yet
	answerAhead = 16               // answers that an operator has not taken yet
)

// tasks are what operators ask of the nodes whose streams end here.
type tasks struct {
	mu    sync.Mutex
	next  uint64 // id; begins anywhere, so that a manager before this one gave out others
	nodes map[string]*nodeTasks
	asked map[uint64]*task
}

// nodeTasks are the tasks of one node's stream.
type nodeTasks struct {
	queue     chan *weirv1.NodeTask
	closed    chan struct{} // with the stream
	capturing bool
}

// task is one that a caller waits for.
type task struct {
	id      uint64
	name    string // of the node
	role    model.Role
	stream  *nodeTasks
	answers chan *weirv1.AnswerTaskRequest
	ended   chan struct{} // nobody waits any more
}

func newTasks() *tasks {
	return &tasks{next: rand.Uint64(), nodes: map[string]*nodeTasks{}, asked: map[uint64]*task{}}
}

// open begins the tasks of a node's stream; the caller ends them with the stream.
func (t *tasks) open(name string) (queue <-chan *weirv1.NodeTask, ended func()) {
	s := &nodeTasks{queue: make(chan *weirv1.NodeTask, taskBacklog), closed: make(chan struct{})}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodes[name] = s
	return s.queue, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		close(s.closed)
		if t.nodes[name] == s { // else a newer stream took its place
			delete(t.nodes, name)
		}
	}
}

// has says whether a node's stream ends here.
func (t *tasks) has(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nodes[name] != nil
}

// ask hands a task to a node of a role; it returns a function that ends the waiting for answers.
func (t *tasks) ask(s *store.State, name string, role model.Role, what *weirv1.NodeTask) (*task, func(), error) {
	node, there := s.Nodes.Get(name)
	if !there {
		return nil, nil, apierr.NotFound(string(role), name, s.Nodes, func(model.Node) bool { return true })
	}
	if node.Role != role {
		return nil, nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s is a %s: name a %s", name, node.Role, role))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	stream := t.nodes[name]
	_, captures := what.GetTask().(*weirv1.NodeTask_Capture)
	switch {
	case stream == nil && s.Streams.At(name):
		return nil, nil, connect.NewError(connect.CodeFailedPrecondition,
			fmt.Errorf("%s %s is connected to another manager, which does not say so to this one yet: try again", role, name))
	case stream == nil:
		return nil, nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("%s %s is not connected", role, name))
	case captures && stream.capturing:
		return nil, nil, connect.NewError(connect.CodeResourceExhausted,
			fmt.Errorf("%s %s captures already: wait until that ends", role, name))
	}
	t.next++
	asked := &task{
		id: t.next, name: name, role: role, stream: stream,
		answers: make(chan *weirv1.AnswerTaskRequest, answerAhead), ended: make(chan struct{}),
	}
	what.Id = asked.id
	select {
	case stream.queue <- what:
	default:
		return nil, nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("%s %s has %d tasks to do already", role, name, taskBacklog))
	}
	t.asked[asked.id] = asked
	stream.capturing = stream.capturing || captures
	return asked, func() { t.forget(asked, captures) }, nil
}

// forget ends the waiting for a task's answers, and tells the node.
func (t *tasks) forget(asked *task, captured bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.asked, asked.id)
	close(asked.ended)
	if captured {
		asked.stream.capturing = false
	}
	select {
	case asked.stream.queue <- &weirv1.NodeTask{Id: asked.id, Task: &weirv1.NodeTask_Cancel{Cancel: true}}:
	default: // it learns of it when it answers
	}
}

// find is the task that a node answers, or nil when nobody waits.
func (t *tasks) find(name string, id uint64) *task {
	t.mu.Lock()
	defer t.mu.Unlock()
	if asked := t.asked[id]; asked != nil && asked.name == name {
		return asked
	}
	return nil
}

// next waits for an answer.
func (asked *task) next(ctx context.Context, timeout <-chan time.Time) (*weirv1.AnswerTaskRequest, error) {
	select {
	case answer := <-asked.answers:
		if reason := answer.GetError(); reason != "" {
			return answer, connect.NewError(connect.CodeAborted, fmt.Errorf("%s %s: %s", asked.role, asked.name, reason))
		}
		return answer, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-asked.stream.closed:
		return nil, connect.NewError(connect.CodeUnavailable, fmt.Errorf("%s %s disconnected before it answered", asked.role, asked.name))
	case <-timeout:
		return nil, connect.NewError(connect.CodeDeadlineExceeded, fmt.Errorf("%s %s does not answer", asked.role, asked.name))
	}
}

// AnswerTask takes a node's answer. Users read its texts in a terminal.
func (m *Service) AnswerTask(ctx context.Context, r *weirv1.AnswerTaskRequest) (*weirv1.AnswerTaskResponse, error) {
	asked := m.tasks.find(r.GetName(), r.GetId())
	if asked == nil {
		return &weirv1.AnswerTaskResponse{Gone: true}, nil
	}
	makePrintable(r.ProtoReflect())
	select {
	case asked.answers <- r:
		return &weirv1.AnswerTaskResponse{}, nil
	case <-asked.ended:
		return &weirv1.AnswerTaskResponse{Gone: true}, nil
	case <-ctx.Done():
		return nil, apierr.ToConnect(ctx.Err())
	}
}

// makePrintable makes all texts of a message printable, also in what it holds.
func makePrintable(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() || f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.MessageKind:
		case f.IsList():
			for i := range v.List().Len() {
				if f.Kind() == protoreflect.MessageKind {
					makePrintable(v.List().Get(i).Message())
				} else {
					v.List().Set(i, protoreflect.ValueOfString(events.Printable(v.List().Get(i).String())))
				}
			}
		case f.Kind() == protoreflect.MessageKind:
			makePrintable(v.Message())
		default:
			m.Set(f, protoreflect.ValueOfString(events.Printable(v.String())))
		}
		return true
	})
}

// ExplainPacket runs a packet through the programs of one mux or host.
func (m *Service) ExplainPacket(ctx context.Context, r *weirv1.ExplainPacketRequest) (*weirv1.ExplainPacketResponse, error) {
	state := m.Store.State()
	if client, ctx, err := m.atHolder(ctx, state, r.GetMux()); err != nil {
		return nil, apierr.ToConnect(err)
	} else if client != nil {
		explained, err := client.ExplainPacket(ctx, r)
		if err != nil {
			return nil, apierr.ToConnect(err)
		}
		return explained, nil
	}
	explained, err := m.explainAt(ctx, state, r.GetMux(), r.GetFrame())
	if err != nil {
		return nil, err
	}
	return &weirv1.ExplainPacketResponse{Explanation: explained}, nil
}

// Capture streams copies of a mux's packets.
func (m *Service) Capture(ctx context.Context, r *weirv1.CaptureRequest, stream *connect.ServerStream[weirv1.CaptureResponse]) error {
	return m.capture(ctx, r, m.atHolder, stream.Send)
}

// holderOf finds the manager that holds a mux's stream, as atHolder.
type holderOf func(ctx context.Context, s *store.State, mux string) (*rpc.Client, context.Context, error)

// capture is Capture, which sends by send.
func (m *Service) capture(ctx context.Context, r *weirv1.CaptureRequest, holder holderOf, send func(*weirv1.CaptureResponse) error) error {
	capture, err := wire.CaptureFromProto(r)
	if err != nil {
		return apierr.ToConnect(err)
	}
	state := m.Store.State()
	if client, ctx, err := holder(ctx, state, r.GetMux()); err != nil {
		return apierr.ToConnect(err)
	} else if client != nil {
		return apierr.ToConnect(relayCapture(ctx, client, r, send))
	}
	asked, done, err := m.tasks.ask(state, r.GetMux(), model.RoleMux, &weirv1.NodeTask{
		Task: &weirv1.NodeTask_Capture{Capture: wire.CaptureTaskToProto(r, capture)},
	})
	if err != nil {
		return err
	}
	defer done()
	if err := send(&weirv1.CaptureResponse{}); err != nil { // the caller knows that it was taken
		return err
	}
	timeout := time.After(capture.Duration + taskTime)
	for {
		answer, err := asked.next(ctx, timeout)
		if err != nil {
			return apierr.ToConnect(err)
		}
		if err := send(&weirv1.CaptureResponse{Packets: answer.GetPackets(), Lost: answer.GetLost()}); err != nil {
			return err
		}
		if answer.GetDone() {
			return nil
		}
	}
}
