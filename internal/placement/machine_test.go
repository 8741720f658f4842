package placement

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
)

// The same input gives the same placements, byte for byte, on every machine: the digest holds for all of them. What
// changes placements on purpose changes it here, too.
func TestPlacementsAreTheSameOnEveryMachine(t *testing.T) {
	const want = "4794cbbe96f0929e5c17bf4eed89c18b85079136d43639441389a036d8003ff6"
	r, digest := rand.New(rand.NewPCG(9, 1)), sha256.New()
	for range 20 {
		f := drawFabric(t, r)
		demands, policy := drawDemands(r, f, 40), drawPolicy(r)
		current := place(t, f, demands, nil, Policy{Spread: Twins, Seed: 3}).Where(f)
		text, err := json.Marshal(place(t, f, demands, current, policy))
		if err != nil {
			t.Fatal(err)
		}
		digest.Write(text)
	}
	if got := fmt.Sprintf("%x", digest.Sum(nil)); got != want {
		t.Errorf("the digest of 20 placements is %s, want %s", got, want)
	}
}
