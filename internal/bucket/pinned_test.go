package bucket

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

func anyPins(t *rapid.T, size int) []bool {
	return rapid.SliceOfN(rapid.Bool(), size, size).Draw(t, "pinned")
}

// least is how many buckets the backends have at least, where there are line of them for a weight of 1.
func least(backends []Backend, pinned map[model.Slot]int, line float64) int {
	sum := 0
	for _, m := range backends {
		if m.Weight > 0 {
			sum += max(pinned[m.Slot], int(math.Floor(line*float64(m.Weight)+rounding)))
		}
	}
	return sum
}

// rounding is less than any difference between levels, and nearly is so again.
const (
	nearly   = 1e-5
	rounding = 1e-8
)

// level is the highest at which the backends have room: of all that there are, the oracle.
func level(backends []Backend, pinned map[model.Slot]int, room int) float64 {
	sum := 0.0
	for _, m := range backends {
		sum += float64(m.Weight)
	}
	highest := float64(room) / sum
	if least(backends, pinned, highest) <= room {
		return highest
	}
	best := 0.0
	for _, m := range backends {
		for n := 1; m.Weight > 0 && n <= room; n++ {
			line := float64(n)/float64(m.Weight) - nearly // just not n for m
			if line < highest && line > best && least(backends, pinned, line) <= room {
				best = line
			}
		}
	}
	return best
}

// fair says whether table keeps the pinned buckets of old and balances the others.
func fair(old, table []model.Slot, pinned []bool, backends []Backend) bool {
	held, stuck, weight := count(table), map[model.Slot]int{}, map[model.Slot]uint32{}
	for _, m := range backends {
		weight[m.Slot] = m.Weight
	}
	room := len(table)
	for i, slot := range table {
		if pinned[i] {
			if slot != old[i] {
				return false
			}
			stuck[slot]++
			if weight[slot] == 0 {
				room--
			}
		} else if weight[slot] == 0 {
			return false
		}
	}
	line := level(backends, stuck, room)
	for _, m := range backends {
		exact := line * float64(m.Weight)
		n, low, high := held[m.Slot], int(math.Floor(exact+rounding)), int(math.Ceil(exact-rounding))
		if m.Weight > 0 && (n < max(low, stuck[m.Slot]) || n > max(high, stuck[m.Slot])) {
			return false
		}
	}
	return true
}

func TestPinnedBucketsStayAndTheOthersAreBalanced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		backends := backends(t, 20, 50)
		old := anyTable(t, powerOfTwo(t, 0, 6, "old size"), 25)
		pinned := anyPins(t, len(old))
		size := len(old) * powerOfTwo(t, 0, 2, "growth")
		table, moved := Assign(old, pinned, backends, size)
		if !anyWeight(backends) {
			if table != nil {
				t.Fatalf("a table without a backend: %v", table)
			}
			return
		}
		grown := double(old, size)
		grownPins := make([]bool, size)
		for i := range grownPins {
			grownPins[i] = pinned[i%len(pinned)]
		}
		if !fair(grown, table, grownPins, backends) {
			t.Fatalf("%v became %v, with %v pinned and backends %v", old, table, pinned, backends)
		}
		if n := differences(grown, table); n != moved {
			t.Fatalf("%d buckets differ, %d were reported", n, moved)
		}
	})
}

func TestMovesAroundPinnedBucketsAreTheFewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		backends := backends(t, 3, 5)
		if !anyWeight(backends) {
			return
		}
		old := anyTable(t, powerOfTwo(t, 0, 3, "size"), 4)
		pinned := anyPins(t, len(old))
		fewest, table := len(old)+1, slices.Clone(old)
		var try func(i, moves int)
		try = func(i, moves int) {
			switch {
			case i == len(table):
				if moves < fewest && fair(old, table, pinned, backends) {
					fewest = moves
				}
				return
			case pinned[i]:
				try(i+1, moves)
				return
			}
			for _, m := range backends {
				if table[i] = m.Slot; m.Slot == old[i] {
					try(i+1, moves)
				} else {
					try(i+1, moves+1)
				}
			}
			table[i] = old[i]
		}
		try(0, 0)
		if next, moved := Assign(old, pinned, backends, len(old)); moved != fewest {
			t.Fatalf("%v became %v with %d moves, %d would do", old, next, moved, fewest)
		}
	})
}

func TestPinningWhatMovedChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		backends := backends(t, 20, 50)
		if !anyWeight(backends) {
			return
		}
		old := anyTable(t, 64, 25)
		pinned := anyPins(t, 64)
		table, _ := Assign(old, pinned, backends, 64)
		for i := range table {
			pinned[i] = pinned[i] || table[i] != old[i]
		}
		if again, moved := Assign(table, pinned, backends, 64); moved != 0 {
			t.Fatalf("%d buckets moved: %v became %v", moved, table, again)
		}
	})
}

func TestUnpinnedBucketsAreBalancedAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		backends := backends(t, 10, 5)
		if !anyWeight(backends) {
			return
		}
		table, _ := Assign(nil, nil, backends, 64)
		changed := slices.Concat(backends, []Backend{{Slot: 100, Weight: 3}})
		pinned, _ := Assign(table, anyPins(t, 64), changed, 64)
		waiting := Waiting(pinned, changed)
		free, moved := Assign(pinned, nil, changed, 64)
		if err := balanced(free, changed); err != nil || moved != waiting {
			t.Fatalf("%d buckets waited and %d moved: %v", waiting, moved, err)
		}
	})
}

func TestPinnedByExample(t *testing.T) {
	two := []Backend{{1, 1}, {2, 1}}
	for _, c := range []struct {
		name     string
		old      []model.Slot
		pinned   []bool
		backends []Backend
		want     []model.Slot
	}{
		{"a drained one keeps what is pinned", []model.Slot{3, 3, 1, 2}, []bool{true, false, false, false}, two, []model.Slot{3, 1, 1, 2}},
		{"a newcomer takes what is free", []model.Slot{1, 1, 2, 2}, []bool{true, true, false, false}, []Backend{{2, 1}, {1, 1}, {3, 1}}, []model.Slot{1, 1, 2, 3}},
		{"all pinned", []model.Slot{1, 1, 1, 1}, []bool{true, true, true, true}, two, []model.Slot{1, 1, 1, 1}},
	} {
		if got, _ := Assign(c.old, c.pinned, c.backends, len(c.old)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
