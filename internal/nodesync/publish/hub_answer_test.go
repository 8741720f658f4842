package publish

import (
	"fmt"
	"log/slog"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync/publish/progress"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/presence"
)

// answering is a Hub with muxes that have their streams here.
func answering(muxes int) (h *Hub, names []string) {
	for i := range muxes {
		names = append(names, fmt.Sprint("mux", i))
	}
	h = New(&store.Store{Presence: presence.New(nil, slog.New(slog.DiscardHandler))}, nil)
	h.state, h.pool = poolOf(names...)
	h.state.Generation = 1 << 40
	for _, name := range names {
		h.OpenMux(name, false, nil, false)
	}
	h.findFloor(h.state, h.pool)
	return h, names
}

// A generation that muxes acknowledge costs the same for each, however many there are: each acknowledges each.
func TestAcknowledgementsCostTheSameWithMoreMuxes(t *testing.T) {
	allocated := func(muxes int) float64 {
		h, names := answering(muxes)
		var generation model.Generation
		return testing.AllocsPerRun(20, func() {
			generation++
			for _, name := range names {
				if !h.AckMux(name, generation, generation) {
					t.Fatalf("%s has no stream here", name)
				}
			}
			if h.AcknowledgedByMuxes() != generation {
				t.Fatalf("all muxes have acknowledged %d, want %d", h.AcknowledgedByMuxes(), generation)
			}
		}) / float64(muxes)
	}
	if few, many := allocated(8), allocated(200); many > few {
		t.Errorf("an acknowledgement of one of 200 muxes allocates %.2f times, of one of 8 %.2f times", many, few)
	}
}

// BenchmarkAcknowledgement is of one mux and generation.
func BenchmarkAcknowledgement(b *testing.B) {
	for _, muxes := range []int{8, 100, 1000} {
		b.Run(fmt.Sprint("muxes=", muxes), func(b *testing.B) {
			h, names := answering(muxes)
			for i := 0; b.Loop(); i++ {
				h.AckMux(names[i%muxes], model.Generation(1+i/muxes), 0)
			}
		})
	}
}

// Whatever muxes acknowledge, here and elsewhere, the floor that follows it is the one that is computed from all.
func TestTheFloorFollowsAcknowledgements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProgress()
		s, pool := poolOf("mux1", "mux2", "mux3")
		names := rapid.SampledFrom([]string{"mux1", "mux2", "mux3", "stranger"})
		at := rapid.Custom(func(t *rapid.T) progress.Mux {
			generation := model.Generation(rapid.IntRange(0, 25).Draw(t, "answered"))
			return progress.Mux{Runs: generation, Answered: generation, Joins: rapid.IntRange(0, 3).Draw(t, "joins") == 0}
		})
		p.findFloor(s, pool)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			var muxes []string
			switch manager := rapid.SampledFrom([]string{"", "m2", "m3"}).Draw(t, "manager"); {
			case manager == "":
				muxes = []string{names.Draw(t, "mux")}
				p.setMux(muxes[0], at.Draw(t, "progress"), 0)
			case rapid.IntRange(0, 4).Draw(t, "ends") == 0:
				_, muxes = p.setOther(manager, nil)
			default:
				_, muxes = p.setOther(manager, &progress.Nodes{Muxes: rapid.MapOfN(names, at, 0, 3).Draw(t, "said")})
			}
			got := p.updateFloor(s, pool, muxes...)
			if want := p.findFloor(s, pool); got != want || p.AcknowledgedByMuxes() != want {
				t.Fatalf("after news of %v the floor is %d, want %d", muxes, got, want)
			}
		}
	})
}
