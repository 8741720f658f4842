package muxd

import (
	"context"
	"errors"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

const (
	taskBacklog   = 16              // queued tasks
	tasksAtOnce   = 8               // more are rejected
	answerTimeout = 5 * time.Second // of one answer
)

// tasks runs tasks of operators that the manager sends, such as captures and explanations.
type tasks struct {
	config   Config
	tables   *tables
	incoming chan *weirv1.MuxTask

	mu      sync.Mutex
	running map[uint64]context.CancelFunc
}

func newTasks(config Config, t *tables) *tasks {
	return &tasks{
		config: config, tables: t, incoming: make(chan *weirv1.MuxTask, taskBacklog),
		running: map[uint64]context.CancelFunc{},
	}
}

// enqueue queues tasks of the stream. It never blocks, as the stream carries the tables too. The manager bounds their
// number.
func (t *tasks) enqueue(list []*weirv1.MuxTask) {
	for _, task := range list {
		select {
		case t.incoming <- task:
		default:
			t.config.Log.Warn("too many tasks of the manager: one is left out")
		}
	}
}

// run runs tasks until ctx ends, and cancels those under way then.
func (t *tasks) run(ctx context.Context) error {
	var under sync.WaitGroup
	defer under.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case task := <-t.incoming:
			if _, cancels := task.GetTask().(*weirv1.MuxTask_Cancel); cancels {
				t.cancel(task.GetId())
				continue
			}
			doing, done, ok := t.begin(ctx, task.GetId())
			if !ok {
				under.Go(func() { t.answer(ctx, task.GetId(), nil, errors.New("it does as many tasks as it can already")) })
				continue
			}
			under.Go(func() {
				defer done()
				t.do(doing, task)
			})
		}
	}
}

// begin registers a running task; false: there are too many.
func (t *tasks) begin(ctx context.Context, id uint64) (context.Context, func(), bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.running) >= tasksAtOnce {
		return nil, nil, false
	}
	doing, cancel := context.WithCancel(ctx)
	t.running[id] = cancel
	return doing, func() {
		t.cancel(id)
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.running, id)
	}, true
}

func (t *tasks) cancel(id uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if cancel := t.running[id]; cancel != nil {
		cancel()
	}
}

func (t *tasks) do(ctx context.Context, task *weirv1.MuxTask) {
	switch what := task.GetTask().(type) {
	case *weirv1.MuxTask_Explain:
		answer, err := t.explain(what.Explain.GetFrame())
		t.answer(ctx, task.GetId(), answer, err)
	case *weirv1.MuxTask_Capture:
		lost, err := t.capture(ctx, task.GetId(), what.Capture)
		if errors.Is(err, errNobodyWaits) || ctx.Err() != nil { // cancelled, or the mux ends
			return
		}
		t.answer(ctx, task.GetId(), &weirv1.AnswerTaskRequest{Lost: lost}, err)
	default:
		t.answer(ctx, task.GetId(), nil, errors.New("it does not know tasks of this kind: it is older than the manager"))
	}
}

func (t *tasks) explain(frame []byte) (*weirv1.AnswerTaskRequest, error) {
	if err := wire.CheckExplainFrame(frame); err != nil {
		return nil, err
	}
	generation, _, _ := t.tables.current()
	mac := t.tables.mac()
	copy(frame, mac[:]) // the caller does not know it
	explanation, err := t.config.Datapath.Explain(frame)
	if err != nil {
		return nil, err
	}
	return &weirv1.AnswerTaskRequest{Explanation: wire.ExplanationToProto(explanation, generation)}, nil
}

// errNobodyWaits ends a capture whose caller has gone.
var errNobodyWaits = errors.New("nobody waits for the packets")

func (t *tasks) capture(ctx context.Context, id uint64, task *weirv1.CaptureTask) (lost uint64, err error) {
	c, err := wire.CaptureTaskFromProto(task)
	if err != nil {
		return 0, err
	}
	err = t.config.Datapath.Capture(ctx, c, func(packets []model.CapturedPacket, lostSoFar uint64) error {
		lost = lostSoFar
		answer := &weirv1.AnswerTaskRequest{Lost: lost}
		for _, p := range packets {
			answer.Packets = append(answer.Packets, wire.CapturedPacketToProto(p))
		}
		return t.send(ctx, id, answer)
	})
	return lost, err
}

// answer sends a task's last answer.
func (t *tasks) answer(ctx context.Context, id uint64, answer *weirv1.AnswerTaskRequest, err error) {
	if answer == nil {
		answer = &weirv1.AnswerTaskRequest{}
	}
	if err != nil {
		answer.Error = err.Error()
	}
	answer.Done = true
	if err := t.send(ctx, id, answer); err != nil && ctx.Err() == nil {
		t.config.Log.Debug("answer a task of the manager", "err", err)
	}
}

func (t *tasks) send(ctx context.Context, id uint64, answer *weirv1.AnswerTaskRequest) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer.Name, answer.Id = t.config.Name, id
	response, err := t.config.Manager.AnswerTask(ctx, answer)
	if err == nil && response.GetGone() {
		err = errNobodyWaits
	}
	return err
}
