package faults

import (
	"strings"
	"testing"
	"time"
)

// at is an entry of a small history: times in seconds.
func at(from, to int, manager string, c call, a answer) entry {
	c.Manager, c.Name = manager, "r1"
	return entry{call: c, answer: a, From: time.Duration(from) * time.Second, To: time.Duration(to) * time.Second}
}

// The checker finds what it is there for: each history below is good but for one entry.
func TestCheckerFindsWrongHistories(t *testing.T) {
	writeA := at(0, 1, "m1", call{Kind: apply, Value: "a"}, answer{Outcome: created, Version: 5})
	writeB := at(2, 3, "m1", call{Kind: apply, Value: "b"}, answer{Outcome: updated, Version: 6})
	lost := at(2, 3, "m2", call{Kind: apply, Value: "b"}, answer{Outcome: unknown})
	read := func(from int, manager, value string, version uint64) entry {
		return at(from, from+1, manager, call{Kind: get}, answer{Value: value, Version: version})
	}
	now := func(e entry) entry { e.Current = true; return e }
	for _, c := range []struct {
		name    string
		history []entry
		want    string // empty: nothing is wrong
	}{
		{"nothing is wrong", []entry{writeA, writeB, now(read(4, "m1", "b", 6))}, ""},
		{"another manager is behind", []entry{writeA, writeB, read(4, "m2", "a", 5)}, ""},
		{"a write that failed was done", []entry{writeA, lost, now(read(4, "m1", "b", 6))}, ""},
		{"a write that failed was not done", []entry{writeA, lost, now(read(4, "m1", "a", 5))}, ""},
		{"a write that failed is done later", []entry{writeA, lost, now(read(4, "m1", "a", 5)), now(read(6, "m1", "b", 9))}, ""},
		{"an acknowledged write is lost", []entry{writeA, writeB, now(read(4, "m2", "a", 5))}, "no order"},
		{"a write is undone", []entry{writeA, lost, now(read(4, "m1", "b", 6)), now(read(6, "m2", "a", 5))}, "no order"},
		{"a value that nobody wrote", []entry{writeA, read(4, "m1", "z", 7)}, "nobody had written"},
		{"a read of what comes later", []entry{writeA, read(1, "m2", "b", 6), at(3, 4, "m1", call{Kind: apply, Value: "b"}, answer{Outcome: updated, Version: 6})}, "nobody had written"},
		{"a write that failed is read, and then was not done", []entry{
			writeA, lost, read(4, "m2", "b", 6), at(6, 7, "m1", call{Kind: update, Value: "c", Expect: "a"}, answer{Outcome: done, Version: 7}),
		}, "no order"},
		{"versions go back", []entry{writeA, at(2, 3, "m1", call{Kind: apply, Value: "b"}, answer{Outcome: updated, Version: 4})}, "acknowledged at 1s"},
		{"two leaders replace one value", []entry{
			writeA,
			at(2, 4, "m1", call{Kind: update, Value: "b", Expect: "a"}, answer{Outcome: done, Version: 6}),
			at(2, 4, "m2", call{Kind: update, Value: "c", Expect: "a"}, answer{Outcome: done, Version: 7}),
		}, "no order"},
		{"an old leader refuses by what it knew", []entry{
			writeA, at(2, 3, "m2", call{Kind: create, Value: "b"}, answer{Outcome: done, Version: 6}),
		}, "no order"},
		{"created twice", []entry{writeA, at(2, 3, "m2", call{Kind: apply, Value: "b"}, answer{Outcome: created, Version: 6})}, "no order"},
		{"deleted, and there", []entry{writeA, at(2, 3, "m1", call{Kind: remove}, answer{Outcome: done}), now(read(4, "m1", "a", 5))}, "no order"},
		{"not there, without a deletion", []entry{writeA, at(2, 3, "m2", call{Kind: remove}, answer{Outcome: absent})}, "no order"},
		{"one value of two versions", []entry{writeA, read(2, "m2", "a", 6)}, "at version 5, and at 6"},
		{"two values of one version", []entry{
			at(0, 2, "m1", call{Kind: apply, Value: "a"}, answer{Outcome: created, Version: 5}),
			at(0, 2, "m2", call{Kind: apply, Value: "b"}, answer{Outcome: updated, Version: 5}),
		}, "version 5 of r1 is a, and b"},
		{"a manager goes back", []entry{writeA, writeB, read(4, "m2", "b", 6), read(6, "m2", "a", 5)}, "told version 5 of r1"},
		{"a manager does not know what it acknowledged", []entry{writeA, writeB, read(4, "m1", "a", 5)}, "told version 5 of r1"},
	} {
		got := strings.Join(inconsistencies(c.history), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
	}
}

func TestGapIsTheLongestWithoutAWrite(t *testing.T) {
	began := time.Now()
	var times []time.Time
	for _, after := range []time.Duration{6, 1, 0, 7} { // as several writers note them
		times = append(times, began.Add(after*time.Second))
	}
	if got := gap(times); got != 5*time.Second {
		t.Errorf("gap is %v, want 5s", got)
	}
}
