package alloc

import (
	"fmt"
	"math/bits"
)

// Span is a slice of a flat table: 1<<bits rows, the first a multiple of that.
type Span struct {
	First uint32
	Bits  int
}

// Rows is the buddy allocator of a flat table's rows. A retired span counts as used until
// Reclaim, because packets may still read it.
type Rows struct {
	Table   string // for errors
	free    []map[uint32]struct{}
	retired []Span
}

// NewRows manages rows rows; a number that is no power of two is cut down to one.
func NewRows(table string, rows uint32) *Rows {
	top := bits.Len32(rows) - 1
	s := &Rows{Table: table, free: make([]map[uint32]struct{}, top+1)}
	for i := range s.free {
		s.free[i] = map[uint32]struct{}{}
	}
	s.free[top][0] = struct{}{}
	return s
}

// Take gives out a span of 1<<bits rows.
func (s *Rows) Take(bits int) (Span, bool) {
	for order := bits; order < len(s.free); order++ {
		for first := range s.free[order] {
			delete(s.free[order], first)
			for order > bits { // keep the lower half, free the upper
				order--
				s.free[order][first+1<<order] = struct{}{}
			}
			return Span{first, bits}, true
		}
	}
	return Span{}, false
}

// Claim takes exactly the given span, which an adopted table uses.
func (s *Rows) Claim(want Span) error {
	for order := want.Bits; order < len(s.free); order++ {
		first := want.First &^ (1<<order - 1)
		if _, ok := s.free[order][first]; !ok {
			continue
		}
		delete(s.free[order], first)
		for order > want.Bits { // free the half that is not wanted
			order--
			half := first + 1<<order
			if want.First >= half {
				s.free[order][first] = struct{}{}
				first = half
			} else {
				s.free[order][half] = struct{}{}
			}
		}
		return nil
	}
	return fmt.Errorf("claim rows %d to %d of %s: used twice or out of range",
		want.First, want.First+1<<want.Bits-1, s.Table)
}

// Put gives back a span that no packet can read.
func (s *Rows) Put(old Span) {
	for ; old.Bits < len(s.free)-1; old.Bits++ {
		buddy := old.First ^ 1<<old.Bits
		if _, ok := s.free[old.Bits][buddy]; !ok {
			break
		}
		delete(s.free[old.Bits], buddy)
		old.First = min(old.First, buddy)
	}
	s.free[old.Bits][old.First] = struct{}{}
}

// Retire gives back a span that packets may still read, once Reclaim is called.
func (s *Rows) Retire(old Span) { s.retired = append(s.retired, old) }

// Reclaim frees what was retired: the caller knows that no packet reads it any more.
func (s *Rows) Reclaim() {
	for _, old := range s.retired {
		s.Put(old)
	}
	s.retired = nil
}

// Room is the number of rows that are free or retired.
func (s *Rows) Room() int {
	rows := 0
	for order, firsts := range s.free {
		rows += len(firsts) << order
	}
	for _, old := range s.retired {
		rows += 1 << old.Bits
	}
	return rows
}
