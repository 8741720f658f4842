package store

import (
	"testing"
	"time"
)

func TestSeveralChangesInAStateAreACrowd(t *testing.T) {
	var c crowd
	now := time.Unix(1000, 0)
	of := func(names ...string) Delta {
		d := newDelta()
		for _, name := range names {
			d.VIPs[name] = true
		}
		return d
	}
	if c.now(now) {
		t.Error("before there is a State there is a crowd")
	}
	for range 10 {
		c.note(of("shop"), now)
	}
	if c.now(now) {
		t.Error("changes that come one by one are a crowd")
	}
	c.note(of("shop", "blog"), now)
	c.note(of("shop"), now.Add(time.Second))
	for after, want := range map[time.Duration]bool{0: true, crowdLasts - 1: true, crowdLasts: false} {
		if got := c.now(now.Add(after)); got != want {
			t.Errorf("%s after two changes in a State a crowd is %t", after, got)
		}
	}
}
