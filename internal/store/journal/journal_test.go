package journal

import (
	"testing"
	"time"
)

// Who looks while a State becomes the newest finds it with its changes: else they would never be told.
func TestAStateIsSeenWithItsChanges(t *testing.T) {
	j, newest := New(), int64(4)
	j.Begin(newest, func() {})
	type found struct {
		revision int64
		changes  int
	}
	looked, began := make(chan found, 1), make(chan bool)
	j.Add([]Change{{Name: "shop"}}, 5, func() {
		newest = 5
		go func() {
			close(began)
			var f found
			changes, complete, _ := j.Since(4, func() { f.revision = newest })
			if f.changes = len(changes); !complete {
				f.changes = -1
			}
			looked <- f
		}()
		<-began
		select {
		case f := <-looked:
			t.Errorf("revision %d was found before its changes were there, with %d", f.revision, f.changes)
			looked <- f
		case <-time.After(50 * time.Millisecond): // it waits
		}
	})
	if f := <-looked; f != (found{5, 1}) {
		t.Errorf("found %+v", f)
	}
}
