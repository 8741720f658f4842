package mux

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSlicesNeverOverlap drives the allocator against a plain array of owners. What is retired
// counts as owned until reclaim.
func TestSlicesNeverOverlap(t *testing.T) {
	const rows = 64
	rapid.Check(t, func(t *rapid.T) {
		s := newRowSlices("rows", rows)
		var owned [rows]bool
		var held, retired []span
		mark := func(which span, to bool) {
			if which.first%(1<<which.bits) != 0 {
				t.Fatalf("%v does not begin at a multiple of its size", which)
			}
			for row := which.first; row < which.first+1<<which.bits; row++ {
				if owned[row] == to {
					t.Fatalf("row %d of %v: owned is %v already", row, which, to)
				}
				owned[row] = to
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				if got, ok := s.take(rapid.IntRange(0, 7).Draw(t, "bits")); ok {
					mark(got, true)
					held = append(held, got)
				}
			},
			"put": func(t *rapid.T) {
				if len(held) > 0 {
					mark(held[0], false)
					s.put(held[0])
					held = held[1:]
				}
			},
			"retire": func(t *rapid.T) {
				if len(held) > 0 {
					s.retire(held[0])
					retired, held = append(retired, held[0]), held[1:]
				}
			},
			"reclaim": func(t *rapid.T) {
				s.reclaim()
				for _, old := range retired {
					mark(old, false)
				}
				retired = nil
			},
			"adopt": func(t *rapid.T) { // as a restart does: what is retired is free then
				for _, old := range retired {
					mark(old, false)
				}
				s, retired = newRowSlices("rows", rows), nil
				for _, have := range held {
					if err := s.claim(have); err != nil {
						t.Fatal(err)
					}
					if err := s.claim(have); err == nil {
						t.Fatalf("%v was claimed twice", have)
					}
				}
			},
			"": func(t *rapid.T) {
				free := s.room()
				for _, old := range retired {
					free -= 1 << old.bits
				}
				for _, is := range owned {
					if is {
						free++
					}
				}
				if free != rows {
					t.Fatalf("%d rows are owned or free, want %d", free, rows)
				}
			},
		})
	})
}
