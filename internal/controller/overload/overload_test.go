package overload

import (
	"testing"
	"time"
)

// One mux of several makes no quorum, however long it complains; two do from when the second one begins.
func TestOneMuxMakesNoQuorum(t *testing.T) {
	var c overloadReport
	at := func(s int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(s) * time.Second) }
	for s := range 60 {
		c.count(false, at(s))
	}
	if !c.quorum.IsZero() {
		t.Errorf("one mux is a quorum since %s", c.quorum)
	}
	c.count(true, at(60))
	c.count(false, at(63))
	c.count(true, at(64))
	if !c.quorum.Equal(at(60)) {
		t.Errorf("two are one since %s, want %s", c.quorum, at(60))
	}
	c.count(false, at(70))
	if !c.quorum.IsZero() {
		t.Errorf("they are still, after a gap: since %s", c.quorum)
	}
}
