package muxd

import (
	"context"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// answered waits for an answer of the task.
func (b *bench) answered(id uint64) *weirv1.AnswerTaskRequest {
	b.t.Helper()
	select {
	case answer := <-b.manager.answers:
		if answer.GetId() != id || answer.GetName() != "mux-1" {
			b.t.Errorf("answer is of task %d by %s, want %d by mux-1", answer.GetId(), answer.GetName(), id)
		}
		return answer
	case <-time.After(20 * time.Second):
		b.t.Fatalf("task %d is not answered", id)
		return nil
	}
}

// works runs the mux's tasks until the test ends.
func (b *bench) works() {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.mux.tasks.run(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	})
}

func explainTask(id uint64, frame []byte) *weirv1.MuxTask {
	return &weirv1.MuxTask{Id: id, Task: &weirv1.MuxTask_Explain{Explain: &weirv1.ExplainPacketTask{Frame: frame}}}
}

func captureTask(id uint64, protocol string) *weirv1.MuxTask {
	return &weirv1.MuxTask{Id: id, Task: &weirv1.MuxTask_Capture{Capture: &weirv1.CaptureTask{
		Filter: &weirv1.CaptureFilter{Protocol: protocol},
	}}}
}

func TestTasksAreAnswered(t *testing.T) {
	b := newBench(t, nil)
	b.works()
	b.mux.tasks.enqueue([]*weirv1.MuxTask{explainTask(7, make([]byte, 60))})
	if got := b.answered(7); !got.GetDone() || got.GetError() != "" || got.GetExplanation().GetVerdict() != "forward_syn" {
		t.Errorf("answer is %v", got)
	}
	b.mux.tasks.enqueue([]*weirv1.MuxTask{explainTask(8, nil)})
	if got := b.answered(8); !got.GetDone() || got.GetError() == "" {
		t.Errorf("answer to no frame is %v", got)
	}
	b.mux.tasks.enqueue([]*weirv1.MuxTask{captureTask(9, "FROB")})
	if got := b.answered(9); !got.GetDone() || got.GetError() == "" {
		t.Errorf("answer to a wrong filter is %v", got)
	}
	b.mux.tasks.enqueue([]*weirv1.MuxTask{{Id: 10}})
	if got := b.answered(10); !got.GetDone() || got.GetError() != "it does not know tasks of this kind: it is older than the manager" {
		t.Errorf("answer to an unknown task is %v", got)
	}
}

func TestCaptureTaskEnds(t *testing.T) {
	b := newBench(t, nil)
	b.works()
	b.mux.tasks.enqueue([]*weirv1.MuxTask{captureTask(7, "")})
	if got := b.answered(7); got.GetDone() || len(got.GetPackets()) != 1 || got.GetLost() != 3 {
		t.Errorf("answer is %v", got)
	}
	// The caller is away: the manager cancels.
	b.mux.tasks.enqueue([]*weirv1.MuxTask{{Id: 7, Task: &weirv1.MuxTask_Cancel{Cancel: true}}})
	b.idle()
	// Or it could not: the next answer says that nobody waits.
	b.manager.gone = true
	b.mux.tasks.enqueue([]*weirv1.MuxTask{captureTask(8, "")})
	b.answered(8)
	b.idle()
}

// idle waits until no task runs.
func (b *bench) idle() {
	b.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		b.mux.tasks.mu.Lock()
		n := len(b.mux.tasks.running)
		b.mux.tasks.mu.Unlock()
		if n == 0 && len(b.mux.tasks.incoming) == 0 {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%d tasks do not end", n)
		}
	}
}

func TestTooManyTasksAreRefused(t *testing.T) {
	b := newBench(t, nil)
	b.works()
	for id := range uint64(tasksAtOnce) {
		b.mux.tasks.enqueue([]*weirv1.MuxTask{captureTask(id+1, "")})
		b.answered(id + 1)
	}
	b.mux.tasks.enqueue([]*weirv1.MuxTask{explainTask(99, make([]byte, 60))})
	if got := b.answered(99); got.GetError() != "it does as many tasks as it can already" {
		t.Errorf("answer is %v", got)
	}
}

func TestTasksAloneChangeNoTable(t *testing.T) {
	alone := &weirv1.SyncMuxResponse{Generation: 5, Tasks: []*weirv1.MuxTask{explainTask(1, nil)}}
	if !tasksAlone(alone) || tasksAlone(&weirv1.SyncMuxResponse{Generation: 5}) {
		t.Error("a message with tasks alone is not told from one that leads to a generation")
	}
	alone.Snapshot = true
	if tasksAlone(alone) {
		t.Error("a snapshot is taken for tasks alone")
	}
}
