package store

import (
	"testing"
	"time"
)

func TestSeveralChangesInAStateAreACrowd(t *testing.T) {
	var c congestion
	now := time.Unix(1000, 0)
	of := func(names ...string) Delta {
		d := newDelta()
		for _, name := range names {
			d.VIPs[name] = true
		}
		return d
	}
	b := follow(&State{})
	for name, tenant := range map[string]string{"shop": "red", "shelf": "red", "blog": "blue"} {
		v := vip(name, "203.0.113.1")
		v.Tenant = tenant
		b.putVIP(v, 1)
	}
	if c.now(now) {
		t.Error("before there is a State there is a crowd")
	}
	for range 10 {
		c.note(of("shop"), b.next, now)
	}
	c.note(of("shop", "shelf"), b.next, now)
	if c.now(now) {
		t.Error("changes that come one by one, or of one tenant among others, are a crowd")
	}
	c.note(of("shop", "blog"), b.next, now)
	c.note(of("shop"), b.next, now.Add(time.Second))
	for after, want := range map[time.Duration]bool{0: true, congestionLasts - 1: true, congestionLasts: false} {
		if got := c.now(now.Add(after)); got != want {
			t.Errorf("%s after two changes in a State a crowd is %t", after, got)
		}
	}
}

// Where there is one tenant only, its changes are a crowd: nobody else is held up.
func TestChangesOfTheOnlyTenantAreACrowd(t *testing.T) {
	var c congestion
	b, d := follow(&State{}), newDelta()
	for _, name := range []string{"shop", "blog"} {
		b.putVIP(vip(name, "203.0.113.1"), 1)
		d.VIPs[name] = true
	}
	now := time.Unix(1000, 0)
	if c.note(d, b.next, now); !c.now(now) {
		t.Error("two changes in a State are no crowd")
	}
}
