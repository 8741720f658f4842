// Package task runs what operators ask of one mux through the manager: explanations and captures of packets.
package task

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/look"
	"github.com/weirlb/weir/internal/wire"
)

const (
	backlog       = 16              // queued tasks
	maxRunning    = 8               // more are rejected
	answerTimeout = 5 * time.Second // of one answer
)

// Datapath explains and captures packets.
type Datapath interface {
	// Explain runs a frame through the program without sending or counting it.
	Explain(frame []byte) (look.Explanation, error)
	// Capture copies packets until its bounds or ctx end it. It hands on those that came since the last
	// time, and how many were lost so far; an error of to ends it.
	Capture(ctx context.Context, c look.Capture, to func(packets []look.CapturedPacket, lost uint64) error) error
}

// Config configures a Runner.
type Config struct {
	Name     string // of the mux
	Datapath Datapath
	Answer   func(context.Context, *weirv1.AnswerTaskRequest) (*weirv1.AnswerTaskResponse, error) // to the manager
	// Running is the generation that runs, and the interface's address: the program ignores frames to others.
	Running func() (generation model.Generation, mac [6]byte)
	Log     *slog.Logger
}

// Runner runs the tasks of operators that the manager sends.
type Runner struct {
	config   Config
	incoming chan *weirv1.NodeTask

	mu      sync.Mutex
	running map[uint64]context.CancelFunc
}

// New returns a runner without tasks.
func New(config Config) *Runner {
	return &Runner{
		config: config, incoming: make(chan *weirv1.NodeTask, backlog), running: map[uint64]context.CancelFunc{},
	}
}

// Enqueue queues tasks of the stream. It never blocks, as the stream carries the tables too. The manager bounds their
// number.
func (r *Runner) Enqueue(list []*weirv1.NodeTask) {
	for _, task := range list {
		select {
		case r.incoming <- task:
		default:
			r.config.Log.Warn("too many tasks of the manager: one is left out")
		}
	}
}

// Run runs tasks until ctx ends, and cancels those under way then.
func (r *Runner) Run(ctx context.Context) error {
	var under sync.WaitGroup
	defer under.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case task := <-r.incoming:
			if _, cancels := task.GetTask().(*weirv1.NodeTask_Cancel); cancels {
				r.cancel(task.GetId())
				continue
			}
			doing, done, ok := r.begin(ctx, task.GetId())
			if !ok {
				under.Go(func() { r.answer(ctx, task.GetId(), nil, errors.New("it does as many tasks as it can already")) })
				continue
			}
			under.Go(func() {
				defer done()
				r.do(doing, task)
			})
		}
	}
}

// begin registers a running task; false: there are too many.
func (r *Runner) begin(ctx context.Context, id uint64) (context.Context, func(), bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.running) >= maxRunning {
		return nil, nil, false
	}
	doing, cancel := context.WithCancel(ctx)
	r.running[id] = cancel
	return doing, func() {
		r.cancel(id)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, id)
	}, true
}

func (r *Runner) cancel(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel := r.running[id]; cancel != nil {
		cancel()
	}
}

func (r *Runner) do(ctx context.Context, task *weirv1.NodeTask) {
	switch what := task.GetTask().(type) {
	case *weirv1.NodeTask_Explain:
		answer, err := r.explain(what.Explain.GetFrame())
		r.answer(ctx, task.GetId(), answer, err)
	case *weirv1.NodeTask_Capture:
		lost, err := r.capture(ctx, task.GetId(), what.Capture)
		if errors.Is(err, errNobodyWaits) || ctx.Err() != nil { // cancelled, or the mux ends
			return
		}
		r.answer(ctx, task.GetId(), &weirv1.AnswerTaskRequest{Lost: lost}, err)
	default:
		r.answer(ctx, task.GetId(), nil, errors.New("it does not know tasks of this kind: it is older than the manager"))
	}
}

func (r *Runner) explain(frame []byte) (*weirv1.AnswerTaskRequest, error) {
	if err := wire.CheckExplainFrame(frame); err != nil {
		return nil, err
	}
	generation, mac := r.config.Running()
	copy(frame, mac[:]) // the caller does not know it
	explanation, err := r.config.Datapath.Explain(frame)
	if err != nil {
		return nil, err
	}
	return &weirv1.AnswerTaskRequest{Explanation: wire.ExplanationToProto(explanation, generation)}, nil
}

// errNobodyWaits ends a capture whose caller has gone.
var errNobodyWaits = errors.New("nobody waits for the packets")

func (r *Runner) capture(ctx context.Context, id uint64, task *weirv1.CaptureTask) (lost uint64, err error) {
	c, err := wire.CaptureTaskFromProto(task)
	if err != nil {
		return 0, err
	}
	err = r.config.Datapath.Capture(ctx, c, func(packets []look.CapturedPacket, lostSoFar uint64) error {
		lost = lostSoFar
		answer := &weirv1.AnswerTaskRequest{Lost: lost}
		for _, p := range packets {
			answer.Packets = append(answer.Packets, wire.CapturedPacketToProto(p))
		}
		return r.send(ctx, id, answer)
	})
	return lost, err
}

// answer sends a task's last answer.
func (r *Runner) answer(ctx context.Context, id uint64, answer *weirv1.AnswerTaskRequest, err error) {
	if answer == nil {
		answer = &weirv1.AnswerTaskRequest{}
	}
	if err != nil {
		answer.Error = err.Error()
	}
	answer.Done = true
	if err := r.send(ctx, id, answer); err != nil && ctx.Err() == nil {
		r.config.Log.Debug("answer a task of the manager", "err", err)
	}
}

func (r *Runner) send(ctx context.Context, id uint64, answer *weirv1.AnswerTaskRequest) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer.Name, answer.Id = r.config.Name, id
	response, err := r.config.Answer(ctx, answer)
	if err == nil && response.GetGone() {
		err = errNobodyWaits
	}
	return err
}
