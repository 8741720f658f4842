package progress

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

// Whatever was recorded before, the least is that of those that are there.
func TestTheSlowestHasTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		processed := map[string]model.Generation{}
		var s Slowest
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			mux := rapid.SampledFrom([]string{"mux1", "mux2", "mux3"}).Draw(t, "mux")
			if rapid.IntRange(0, 4).Draw(t, "do") == 0 {
				s.Remove(mux)
				delete(processed, mux)
			} else {
				generation := model.Generation(rapid.IntRange(0, 5).Draw(t, "generation")) // less than before, too: another stream
				s.Set(mux, generation)
				processed[mux] = generation
			}
			least, there := s.Least()
			if there != (len(processed) > 0) || there && least != slices.Min(slices.Collect(maps.Values(processed))) {
				t.Fatalf("the least is %d (%t), of %v", least, there, processed)
			}
		}
	})
}

// However many muxes acknowledge a generation, in whatever order: each is looked at once more for it, not once for each other.
func TestTheSlowestIsFoundOnceAGeneration(t *testing.T) {
	const generations = 50
	for _, muxes := range []int{8, 100, 1000} {
		processed := map[string]model.Generation{}
		var names []string
		for i := range muxes {
			names = append(names, fmt.Sprint("mux", i))
			processed[names[i]] = 0
		}
		s := NewSlowest(processed)
		s.looks = 0
		for g := range generations {
			rand.Shuffle(muxes, func(i, j int) { names[i], names[j] = names[j], names[i] })
			for _, mux := range names {
				s.Set(mux, model.Generation(g+1))
			}
		}
		if s.looks != generations*muxes {
			t.Errorf("%d muxes were looked at %d times for %d generations, want %d", muxes, s.looks, generations, generations*muxes)
		}
	}
}
