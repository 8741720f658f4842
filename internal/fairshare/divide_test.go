package fairshare

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestDivide holds what is given of whole numbers against the definition of max-min fairness.
func TestDivide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.IntRange(0, 1000).Draw(t, "room")
		claims := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Claim[int] {
			return Claim[int]{Weight: rapid.IntRange(1, 5).Draw(t, "weight"), Want: rapid.IntRange(0, 500).Draw(t, "want")}
		}), 1, 20).Draw(t, "claims")
		each, left := Divide(room, claims)
		sum := left
		for i, part := range each {
			sum += part
			cut := part < claims[i].Want
			if part < 0 || part > claims[i].Want {
				t.Fatalf("who wants %d gets %d", claims[i].Want, part)
			}
			if cut && left > 0 {
				t.Fatalf("who wants %d gets %d, and %d is left", claims[i].Want, part, left)
			}
			for j, other := range each { // nobody who is cut has less by weight than another, but for what was rounded
				if n := len(claims); cut && (part+n)*claims[j].Weight < (other-n)*claims[i].Weight {
					t.Fatalf("%+v get %d, and %+v get %d", claims[i], part, claims[j], other)
				}
			}
		}
		if sum != room {
			t.Fatalf("parts add up to %d of %d", sum, room)
		}
	})
}

// TestDivideByLevels holds what is given of fractions against a level, found by halving: so much each unit of weight
// gets.
func TestDivideByLevels(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 1000 {
		claims, all := make([]Claim[float64], 1+random.IntN(8)), 0.0
		for i := range claims {
			claims[i] = Claim[float64]{Weight: float64(1 + random.IntN(10)), Want: float64(random.IntN(100))}
			all += claims[i].Want
		}
		room := all * 1.2 * random.Float64()
		low, high := 0.0, 101.0
		for range 100 {
			middle, given := (low+high)/2, 0.0
			for _, c := range claims {
				given += min(c.Want, middle*c.Weight)
			}
			if given < room {
				low = middle
			} else {
				high = middle
			}
		}
		each, left := Divide(room, claims)
		for i, c := range claims {
			if want := min(c.Want, low*c.Weight); math.Abs(each[i]-want) > 1e-6 {
				t.Fatalf("%v of room %v: %v of %v, want %v", claims, room, each[i], c.Want, want)
			}
		}
		if want := max(room-all, 0); math.Abs(left-want) > 1e-6 {
			t.Fatalf("%v of room %v: %v is left, want %v", claims, room, left, want)
		}
		if each, _ := Divide(math.Inf(1), claims); each[0] != claims[0].Want {
			t.Fatalf("of room without end %v is given, want %v", each[0], claims[0].Want)
		}
	}
}
