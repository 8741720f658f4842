package task

import (
	"context"
	"log/slog"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/look"
)

// rig is a runner, a data plane without a kernel, and a manager that takes answers.
type rig struct {
	t *testing.T
	*Runner
	answers chan *weirv1.AnswerTaskRequest
	gone    bool // nobody waits for answers
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, answers: make(chan *weirv1.AnswerTaskRequest, 16)}
	r.Runner = New(Config{
		Name: "mux-1", Datapath: r, Log: slog.New(slog.DiscardHandler),
		Running: func() (model.Generation, [6]byte) { return 7, [6]byte{2} },
		Answer: func(ctx context.Context, answer *weirv1.AnswerTaskRequest) (*weirv1.AnswerTaskResponse, error) {
			select {
			case r.answers <- answer:
			case <-ctx.Done():
			}
			return &weirv1.AnswerTaskResponse{Gone: r.gone}, nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) Explain(frame []byte) (look.Explanation, error) {
	return look.Explanation{Verdict: "forward_syn", Action: "transmit", Frame: frame}, nil
}

// Capture hands on one packet, then goes on until ctx ends it.
func (r *rig) Capture(ctx context.Context, _ look.Capture, to func([]look.CapturedPacket, uint64) error) error {
	if err := to([]look.CapturedPacket{{Verdict: "drop_no_backend"}}, 3); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// answered waits for an answer of the task.
func (r *rig) answered(id uint64) *weirv1.AnswerTaskRequest {
	r.t.Helper()
	select {
	case answer := <-r.answers:
		if answer.GetId() != id || answer.GetName() != "mux-1" {
			r.t.Errorf("answer is of task %d by %s, want %d by mux-1", answer.GetId(), answer.GetName(), id)
		}
		return answer
	case <-time.After(20 * time.Second):
		r.t.Fatalf("task %d is not answered", id)
		return nil
	}
}

func explainTask(id uint64, frame []byte) *weirv1.NodeTask {
	return &weirv1.NodeTask{Id: id, Task: &weirv1.NodeTask_Explain{Explain: &weirv1.ExplainPacketTask{Frame: frame}}}
}

func captureTask(id uint64, protocol string) *weirv1.NodeTask {
	return &weirv1.NodeTask{Id: id, Task: &weirv1.NodeTask_Capture{Capture: &weirv1.CaptureTask{
		Filter: &weirv1.CaptureFilter{Protocol: protocol},
	}}}
}

func TestTasksAreAnswered(t *testing.T) {
	r := newRig(t)
	r.Enqueue([]*weirv1.NodeTask{explainTask(7, make([]byte, 60))})
	if got := r.answered(7); !got.GetDone() || got.GetError() != "" || got.GetExplanation().GetVerdict() != "forward_syn" ||
		got.GetExplanation().GetGeneration() != 7 {
		t.Errorf("answer is %v", got)
	}
	r.Enqueue([]*weirv1.NodeTask{explainTask(8, nil)})
	if got := r.answered(8); !got.GetDone() || got.GetError() == "" {
		t.Errorf("answer to no frame is %v", got)
	}
	r.Enqueue([]*weirv1.NodeTask{captureTask(9, "FROB")})
	if got := r.answered(9); !got.GetDone() || got.GetError() == "" {
		t.Errorf("answer to a wrong filter is %v", got)
	}
	r.Enqueue([]*weirv1.NodeTask{{Id: 10}})
	const unknown = "it does not know tasks of this kind: it is older than the manager"
	if got := r.answered(10); !got.GetDone() || got.GetError() != unknown {
		t.Errorf("answer to an unknown task is %v", got)
	}
}

func TestCaptureTaskEnds(t *testing.T) {
	r := newRig(t)
	r.Enqueue([]*weirv1.NodeTask{captureTask(7, "")})
	if got := r.answered(7); got.GetDone() || len(got.GetPackets()) != 1 || got.GetLost() != 3 {
		t.Errorf("answer is %v", got)
	}
	// The caller is away: the manager cancels.
	r.Enqueue([]*weirv1.NodeTask{{Id: 7, Task: &weirv1.NodeTask_Cancel{Cancel: true}}})
	r.idle()
	// Or it could not: the next answer says that nobody waits.
	r.gone = true
	r.Enqueue([]*weirv1.NodeTask{captureTask(8, "")})
	r.answered(8)
	r.idle()
}

// idle waits until no task runs.
func (r *rig) idle() {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		r.mu.Lock()
		n := len(r.running)
		r.mu.Unlock()
		if n == 0 && len(r.incoming) == 0 {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%d tasks do not end", n)
		}
	}
}

func TestTooManyTasksAreRefused(t *testing.T) {
	r := newRig(t)
	for id := range uint64(maxRunning) {
		r.Enqueue([]*weirv1.NodeTask{captureTask(id+1, "")})
		r.answered(id + 1)
	}
	r.Enqueue([]*weirv1.NodeTask{explainTask(99, make([]byte, 60))})
	if got := r.answered(99); got.GetError() != "it does as many tasks as it can already" {
		t.Errorf("answer is %v", got)
	}
}
