package diagnosis

import (
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/wire"
)

// What a compromised mux answers commands no terminal: users are told its texts without what a terminal obeys.
func TestAnswersArePrintable(t *testing.T) {
	const evil, wanted = "\x1b]0;owned\adrop\u009b2J_\x7fall\r\u202e", "]0;owneddrop2J_all"
	s := &Service{tasks: newTasks()}
	asked := &task{id: 7, name: "mux1", answers: make(chan *weirv1.AnswerTaskRequest, 1), ended: make(chan struct{})}
	s.tasks.asked[asked.id] = asked
	frame := []byte("\x1b\x00\xff")
	_, err := s.AnswerTask(t.Context(), &weirv1.AnswerTaskRequest{
		Name: "mux1", Id: 7, Error: evil, Explanation: &weirv1.PacketExplanation{Verdict: evil, Action: evil, Steps: []string{evil}},
		Packets: []*weirv1.CapturedPacket{{Direction: wire.DirectionIn, Verdict: evil, Comment: evil, Frame: frame}},
	})
	if err != nil {
		t.Fatal(err)
	}
	answer := <-asked.answers
	p := answer.GetPackets()[0]
	told, _ := observe("mux1", p)
	for what, got := range map[string]string{
		"an error": answer.GetError(), "a verdict": told.GetVerdict(), "a comment": told.GetComment(), "an action": answer.GetExplanation().GetAction(),
		"a step": answer.GetExplanation().GetSteps()[0],
	} {
		if got != wanted {
			t.Errorf("%s is told as %q, want %q", what, got, wanted)
		}
	}
	if string(p.GetFrame()) != string(frame) {
		t.Errorf("the packet is %v", p)
	}
}
