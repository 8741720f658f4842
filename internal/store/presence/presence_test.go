package presence

import (
	"log/slog"
	"testing"

	"github.com/weirlb/weir/internal/store/keyspace"
)

// A node that leaves and comes back between two writes has another note than before, which is written: another manager may
// have noted its stream in between, and taken that back.
func TestANodeThatComesBackIsNotedAnew(t *testing.T) {
	r := New(nil, slog.New(slog.DiscardHandler))
	noted := func(node string) note {
		t.Helper()
		notes, _, err := r.notes()
		if err != nil {
			t.Fatal(err)
		}
		return notes[keyspace.Streams+node]
	}
	r.Open("mux2")
	closed, other := r.Open("mux1"), noted("mux2")
	before := noted("mux1")
	closed()
	if again := noted("mux1"); again != (note{}) {
		t.Errorf("without a stream its note is %+v", again)
	}
	r.Open("mux1")
	if again := noted("mux1"); again == before {
		t.Errorf("it came back, and its note is as before: %+v", again)
	}
	if again := noted("mux2"); again != other {
		t.Errorf("the note of another one was %+v, is %+v", other, again)
	}
}
