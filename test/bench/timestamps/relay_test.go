package main

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Packets keep their order, wait for those before them, and take as long as the line does.
func TestLineTakesItsTime(t *testing.T) {
	const bytes = 1250 // 10 ms of the line
	l := line{delay: 30 * time.Millisecond, rate: 1e6, room: 25 * time.Millisecond, random: rand.New(rand.NewPCG(1, 2))}
	now := time.Now()
	for n, want := range []time.Duration{40, 50, 60} {
		at, what := l.take(now, bytes)
		if took := at.Sub(now); what != sent || took != want*time.Millisecond {
			t.Errorf("packet %d: %d after %s, want %d ms", n, what, took, want)
		}
	}
	if _, what := l.take(now, bytes); what != full {
		t.Errorf("packet 3 is taken: %d", what)
	}
	later := now.Add(time.Second)
	if at, what := l.take(later, bytes); what != sent || at.Sub(later) != 40*time.Millisecond {
		t.Errorf("a line that was free for long: %d after %s", what, at.Sub(later))
	}
}

func TestLineLosesItsPart(t *testing.T) {
	const packets, loss = 100_000, 0.05
	l := line{loss: loss, rate: 1e9, room: time.Hour, random: rand.New(rand.NewPCG(1, 2))}
	count := 0
	for range packets {
		if _, what := l.take(time.Now(), 100); what == lost {
			count++
		}
	}
	if count < packets*loss*9/10 || count > packets*loss*11/10 {
		t.Errorf("lost %d of %d", count, packets)
	}
}
