package alloc

import (
	"testing"

	"pgregory.net/rapid"
)

const oracleRows = 64

// sliceOracle is the allocator beside a plain array that says which rows are owned. What is
// retired is owned until reclaim.
type sliceOracle struct {
	slices        *Rows
	owned         [oracleRows]bool
	held, retired []Span
}

// TestSlicesNeverOverlap drives both with the same random steps.
func TestSlicesNeverOverlap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &sliceOracle{slices: NewRows("rows", oracleRows)}
		t.Repeat(map[string]func(*rapid.T){
			"take": o.take, "put": o.put, "retire": o.retire, "reclaim": o.reclaim,
			"adopt": o.adopt, "": o.check,
		})
	})
}

func (o *sliceOracle) mark(t *rapid.T, which Span, owned bool) {
	if which.First%(1<<which.Bits) != 0 {
		t.Fatalf("%v does not begin at a multiple of its size", which)
	}
	for row := which.First; row < which.First+1<<which.Bits; row++ {
		if o.owned[row] == owned {
			t.Fatalf("row %d of %v: owned is %v already", row, which, owned)
		}
		o.owned[row] = owned
	}
}

func (o *sliceOracle) take(t *rapid.T) {
	if got, ok := o.slices.Take(rapid.IntRange(0, 7).Draw(t, "bits")); ok {
		o.mark(t, got, true)
		o.held = append(o.held, got)
	}
}

func (o *sliceOracle) put(t *rapid.T) {
	if len(o.held) > 0 {
		o.mark(t, o.held[0], false)
		o.slices.Put(o.held[0])
		o.held = o.held[1:]
	}
}

func (o *sliceOracle) retire(*rapid.T) {
	if len(o.held) > 0 {
		o.slices.Retire(o.held[0])
		o.retired, o.held = append(o.retired, o.held[0]), o.held[1:]
	}
}

func (o *sliceOracle) reclaim(t *rapid.T) {
	o.slices.Reclaim()
	o.freeRetired(t)
}

func (o *sliceOracle) freeRetired(t *rapid.T) {
	for _, old := range o.retired {
		o.mark(t, old, false)
	}
	o.retired = nil
}

// adopt does what a restart does: only what is held is known then.
func (o *sliceOracle) adopt(t *rapid.T) {
	o.slices = NewRows("rows", oracleRows)
	o.freeRetired(t)
	for _, have := range o.held {
		if err := o.slices.Claim(have); err != nil {
			t.Fatal(err)
		}
		if err := o.slices.Claim(have); err == nil {
			t.Fatalf("%v was claimed twice", have)
		}
	}
}

func (o *sliceOracle) check(t *rapid.T) {
	rows := o.slices.Room()
	for _, old := range o.retired {
		rows -= 1 << old.Bits
	}
	for _, owned := range o.owned {
		if owned {
			rows++
		}
	}
	if rows != oracleRows {
		t.Fatalf("%d rows are owned or free, want %d", rows, oracleRows)
	}
}
