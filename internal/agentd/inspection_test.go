package agentd

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// answers takes what a host answers.
type answers struct {
	Manager
	got chan *weirv1.AnswerTaskRequest
}

func (a answers) AnswerTask(_ context.Context, r *weirv1.AnswerTaskRequest) (*weirv1.AnswerTaskResponse, error) {
	a.got <- r
	return &weirv1.AnswerTaskResponse{}, nil
}

// Each task but a cancellation has one answer, whatever is in it; too many at once are left out, and block nothing.
func TestTasksAreAnswered(t *testing.T) {
	manager := answers{got: make(chan *weirv1.AnswerTaskRequest, 100)}
	i := newInspection(Config{Name: "host1", Manager: manager, Log: slog.New(slog.DiscardHandler)})
	list := func(vip string) *weirv1.NodeTask_Connections {
		return &weirv1.NodeTask_Connections{Connections: &weirv1.ListConnectionsTask{Vip: vip, Count: 1 << 31}}
	}
	i.enqueue([]*weirv1.NodeTask{
		{Id: 1, Task: &weirv1.NodeTask_Cancel{Cancel: true}},
		{Id: 2, Task: list("203.0.113.10")},
		{Id: 3, Task: list("nobody")},
		{Id: 4, Task: &weirv1.NodeTask_Capture{Capture: &weirv1.CaptureTask{}}},
		{Id: 5, Task: &weirv1.NodeTask_FindToken{FindToken: &weirv1.FindTokenTask{Endpoint: &weirv1.EndpointKey{Vip: "203.0.113.10", Protocol: "TCP", Port: 80}, Token: 7}}},
		{Id: 6, Task: &weirv1.NodeTask_FindToken{FindToken: &weirv1.FindTokenTask{}}},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = i.run(ctx) }()
	for id, want := range []string{2: "", 3: "read the VIP's address", 4: "tasks of this kind", 5: "", 6: "must be"} {
		if id < 2 {
			continue
		}
		if got := <-manager.got; got.GetName() != "host1" || got.GetId() != uint64(id) || !got.GetDone() || !strings.Contains(got.GetError(), want) || (want == "") != (got.GetError() == "") {
			t.Errorf("task %d: %v, want %q", id, got, want)
		}
	}
	cancel()
	<-ended
	i.enqueue(make([]*weirv1.NodeTask, 10*inspectionBacklog))
	if n := len(i.incoming); n != inspectionBacklog {
		t.Errorf("%d tasks wait", n)
	}
}
