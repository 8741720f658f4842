package presence

import (
	"fmt"
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
		is, err := r.wanted(keyspace.Streams + node)
		if err != nil {
			t.Fatal(err)
		}
		if is == nil {
			return note{}
		}
		return *is
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

// What a manager writes for a node that connects does not grow with those that are connected; on another lease it writes all.
func TestOnlyWhatChangedIsNoted(t *testing.T) {
	const nodes = 200
	r := New(nil, slog.New(slog.DiscardHandler))
	due := func(want int) {
		t.Helper()
		if wanted, _, err := r.takeDue(); err != nil || len(wanted) != want {
			t.Fatalf("%d keys are due, want %d: %v", len(wanted), want, err)
		}
	}
	var last func()
	for i := range nodes {
		last = r.Open(fmt.Sprint("host", i))
		due(1)
	}
	r.SetReady(7, true)
	r.SetReady(7, true)
	due(1)
	due(0)
	r.Exclude("host0", "it did not answer", "host1")
	due(1)
	last()
	due(2) // its stream, and its exclusion
	r.begin(99)
	due(nodes - 1 + 1 + 1) // streams, the exclusion, how far hosts are
}
