package main

import (
	"math"
	"math/rand/v2"
	"testing"
)

// simulate makes rounds in which the new version takes factor times as long, and each process is off by some of spread for
// as long as it lives. The machine is twice as slow in every third turn.
func simulate(factor, spread float64, count int) (rounds []round) {
	r := rand.New(rand.NewPCG(1, 2))
	for range count {
		s := &samples{}
		for i := range s {
			nanos := 100 * math.Exp(spread*r.NormFloat64())
			if versions[i] == "new" {
				nanos *= factor
			}
			for turn := range 50 {
				slow := 1.0
				if turn%3 == 0 {
					slow = 2
				}
				s[i] = append(s[i], slow*nanos*(1+0.01*r.Float64()))
			}
		}
		rounds = append(rounds, round{names: []string{"class"}, samples: map[string]*samples{"class": s}})
	}
	return rounds
}

func TestVerdictComesWithItsNoise(t *testing.T) {
	for _, c := range []struct {
		name           string
		factor, spread float64
		want           string
	}{
		{"same", 1, 0.005, "within 2 %"},
		{"faster", 0.9, 0.005, "within 2 %"},
		{"slower", 1.05, 0.005, "slower"},
		{"slower, by less than processes differ", 1.05, 0.1, "cannot tell"},
		{"same, but processes differ", 1, 0.1, "cannot tell"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, r := range summarise("mux", simulate(c.factor, c.spread, 10)) {
				if r.Verdict != c.want || math.Abs(r.Ratio-c.factor) > r.Noise {
					t.Errorf("%s: ratio %.3f ± %.3f of %.3f: %s, want %s", r.Class, r.Ratio, r.Noise, c.factor, r.Verdict, c.want)
				}
			}
		})
	}
}

func TestStudentT(t *testing.T) {
	for degrees, want := range map[int]float64{2: 4.303, 4: 2.776, 6: 2.447, 12: 2.179, 20: 2.086} {
		if got := studentT(degrees); math.Abs(got-want) > 0.01*want {
			t.Errorf("studentT(%d) = %.3f, want %.3f", degrees, got, want)
		}
	}
}
