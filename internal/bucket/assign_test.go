package bucket

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

// backends draws up to n backends with unique slots; small draws take the slots 1 to n, so that
// old tables name some of them.
func backends(t *rapid.T, n int, maxWeight uint32) []Backend {
	slots := rapid.Permutation(slotsUpTo(n)).Draw(t, "slots")
	drawn := make([]Backend, rapid.IntRange(0, n).Draw(t, "backends"))
	for i := range drawn {
		drawn[i] = Backend{slots[i], rapid.Uint32Range(0, maxWeight).Draw(t, "weight")}
	}
	return drawn
}

func slotsUpTo(n int) []model.Slot {
	slots := make([]model.Slot, n)
	for i := range slots {
		slots[i] = model.Slot(i + 1)
	}
	return slots
}

func powerOfTwo(t *rapid.T, low, high int, label string) int {
	return 1 << rapid.IntRange(low, high).Draw(t, label)
}

// anyTable draws a table as chance would have it: unbalanced, with slots that are no backend's.
func anyTable(t *rapid.T, size, slots int) []model.Slot {
	slot := rapid.Map(rapid.IntRange(0, slots), func(i int) model.Slot { return model.Slot(i) })
	return rapid.SliceOfN(slot, size, size).Draw(t, "old")
}

func count(table []model.Slot) map[model.Slot]int {
	held := map[model.Slot]int{}
	for _, slot := range table {
		held[slot]++
	}
	return held
}

// balanced says why table is not what the weights ask for, or nothing.
func balanced(table []model.Slot, backends []Backend) error {
	sum := 0
	for _, m := range backends {
		sum += int(m.Weight)
	}
	held := count(table)
	for _, m := range backends {
		floor := len(table) * int(m.Weight) / sum
		ceiling := (len(table)*int(m.Weight) + sum - 1) / sum
		if n := held[m.Slot]; n < floor || n > ceiling {
			return fmt.Errorf("slot %d of weight %d in %d holds %d of %d buckets", m.Slot, m.Weight, sum, n, len(table))
		}
		delete(held, m.Slot)
	}
	if len(held) > 0 {
		return fmt.Errorf("buckets name slots that are no backend's: %v", held)
	}
	return nil
}

func differences(a, b []model.Slot) int {
	n := 0
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

func anyWeight(backends []Backend) bool {
	return slices.ContainsFunc(backends, func(m Backend) bool { return m.Weight > 0 })
}

func TestSharesAreWithinOneBucketOfTheWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		backends := backends(t, 40, model.MaxWeight)
		old := anyTable(t, powerOfTwo(t, 0, 7, "old size"), 50)
		size := len(old) * powerOfTwo(t, 0, 3, "growth")
		table, _ := Assign(old, nil, backends, size)
		if !anyWeight(backends) {
			if table != nil {
				t.Fatalf("a table without a backend: %v", table)
			}
			return
		}
		if len(table) != size {
			t.Fatalf("the table has %d buckets, want %d", len(table), size)
		}
		if err := balanced(table, backends); err != nil {
			t.Fatal(err)
		}
	})
}

// fewestMoves tries every table there is: the oracle.
func fewestMoves(old []model.Slot, backends []Backend) int {
	fewest := len(old) + 1
	table := make([]model.Slot, len(old))
	var try func(i, moves int)
	try = func(i, moves int) {
		if i == len(table) {
			if moves < fewest && balanced(table, backends) == nil {
				fewest = moves
			}
			return
		}
		for _, m := range backends {
			table[i] = m.Slot
			if m.Slot == old[i] {
				try(i+1, moves)
			} else {
				try(i+1, moves+1)
			}
		}
	}
	try(0, 0)
	return fewest
}

func TestMovesAreTheFewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		backends := backends(t, 3, 5)
		if !anyWeight(backends) {
			return
		}
		old := anyTable(t, powerOfTwo(t, 0, 3, "size"), 4)
		table, moved := Assign(old, nil, backends, len(old))
		if want := fewestMoves(old, backends); moved != want {
			t.Fatalf("%v became %v with %d moves, %d would do", old, table, moved, want)
		}
		if n := differences(old, table); n != moved {
			t.Fatalf("%v became %v: %d buckets differ, %d were reported", old, table, n, moved)
		}
	})
}

// A history of changes, as an endpoint lives through them: backends come, go, drain and change
// weight, and the table grows.
func TestNothingMovesThatNeedNot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table []model.Slot
		for range rapid.IntRange(1, 6).Draw(t, "changes") {
			backends := backends(t, 12, 4)
			old := double(table, max(len(table)*powerOfTwo(t, 0, 1, "growth"), 64))
			next, _ := Assign(table, nil, backends, len(old))
			if next == nil {
				table = nil
				continue
			}
			weight := map[model.Slot]uint32{}
			for _, m := range backends {
				weight[m.Slot] = m.Weight
			}
			was, is := count(old), count(next)
			for i := range next {
				from, to := old[i], next[i]
				if from == to {
					continue
				}
				if weight[from] > 0 && is[from] >= was[from] {
					t.Fatalf("bucket %d left slot %d, which ended with %d buckets after %d", i, from, is[from], was[from])
				}
				if is[to] <= was[to] {
					t.Fatalf("bucket %d went to slot %d, which ended with %d buckets after %d", i, to, is[to], was[to])
				}
			}
			table = next
		}
	})
}

func TestTheOrderOfMembersDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		backends := backends(t, 10, 4)
		old := anyTable(t, 64, 12)
		want, _ := Assign(old, nil, backends, 64)
		got, _ := Assign(old, nil, rapid.Permutation(backends).Draw(t, "order"), 64)
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestAssigningAgainMovesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		backends := backends(t, 10, 1000)
		once, _ := Assign(anyTable(t, 64, 12), nil, backends, 64)
		twice, moved := Assign(once, nil, backends, 64)
		if moved != 0 || !slices.Equal(once, twice) {
			t.Fatalf("%d buckets moved: %v became %v", moved, once, twice)
		}
	})
}

func TestDoublingMovesNoMoreThanRounding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		backends := backends(t, 10, 1000)
		if !anyWeight(backends) {
			return
		}
		small, _ := Assign(nil, nil, backends, 256)
		large, moved := Assign(small, nil, backends, 512)
		if moved > len(backends) {
			t.Fatalf("%d buckets moved", moved)
		}
		kept := 0
		for i := range large {
			if large[i] == small[i%256] {
				kept++
			}
		}
		if kept != 512-moved {
			t.Fatalf("%d buckets were kept and %d moved, of 512", kept, moved)
		}
	})
}

func TestDoublingAnExactTableMovesNothing(t *testing.T) {
	four := []Backend{{1, 1}, {2, 1}, {3, 1}, {4, 1}}
	small, _ := Assign(nil, nil, four, 256)
	large, moved := Assign(small, nil, four, 512)
	if moved != 0 || !slices.Equal(large[:256], small) || !slices.Equal(large[256:], small) {
		t.Errorf("%d buckets moved", moved)
	}
}

func TestAssignLeavesTheOldTableAlone(t *testing.T) {
	old := []model.Slot{1, 1, 2, 2}
	Assign(old, nil, []Backend{{3, 1}}, 4)
	if !slices.Equal(old, []model.Slot{1, 1, 2, 2}) {
		t.Errorf("old became %v", old)
	}
}

// What to expect of everyday changes, in numbers that a reader can check.
func TestAssignByExample(t *testing.T) {
	cases := []struct {
		name     string
		old      []model.Slot
		backends []Backend
		size     int
		want     []model.Slot
		moved    int
	}{
		{"first table", nil, []Backend{{1, 1}, {2, 1}}, 4, []model.Slot{1, 1, 2, 2}, 4},
		{"by weight", nil, []Backend{{1, 3}, {2, 1}}, 4, []model.Slot{1, 1, 1, 2}, 4},
		{"one leaves", []model.Slot{1, 2, 3, 4}, []Backend{{1, 1}, {2, 1}, {4, 1}}, 4, []model.Slot{1, 2, 1, 4}, 1},
		{"one drains", []model.Slot{1, 2, 1, 2}, []Backend{{1, 1}, {2, 0}}, 4, []model.Slot{1, 1, 1, 1}, 2},
		{"one comes", []model.Slot{1, 2, 1, 2}, []Backend{{1, 1}, {2, 1}, {3, 2}}, 4, []model.Slot{1, 2, 3, 3}, 2},
		{"who holds the odd bucket keeps it", []model.Slot{3, 1, 2, 3}, []Backend{{1, 1}, {2, 1}, {3, 1}}, 4, []model.Slot{3, 1, 2, 3}, 0},
		{"the last leaves", []model.Slot{1, 1, 1, 1}, []Backend{{1, 0}}, 4, nil, 4},
		{"more backends than buckets", nil, []Backend{{1, 1}, {2, 1}, {3, 1}}, 2, []model.Slot{1, 2}, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			table, moved := Assign(c.old, nil, c.backends, c.size)
			if !slices.Equal(table, c.want) || moved != c.moved {
				t.Errorf("got %v with %d moves, want %v with %d", table, moved, c.want, c.moved)
			}
		})
	}
}

func BenchmarkAssign(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	thousand := make([]Backend, 1000)
	for i := range thousand {
		thousand[i] = Backend{model.Slot(i + 1), 1 + random.Uint32N(10)}
	}
	table, _ := Assign(nil, nil, thousand, MaxSize)
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			Assign(nil, nil, thousand, MaxSize)
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		for b.Loop() {
			Assign(table, nil, thousand, MaxSize)
		}
	})
	b.Run("one-leaves", func(b *testing.B) {
		for b.Loop() {
			Assign(table, nil, thousand[1:], MaxSize)
		}
	})
}
