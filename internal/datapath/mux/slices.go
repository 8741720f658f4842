package mux

import (
	"fmt"
	"math/bits"
)

// span is a slice of a flat table: 1<<bits rows, the first a multiple of that.
type span struct {
	first uint32
	bits  int
}

// rowSlices is the buddy allocator of a flat table's rows. A retired span counts as used until
// reclaim, because packets may still read it.
type rowSlices struct {
	table   string // for errors
	free    []map[uint32]struct{}
	retired []span
}

// newRowSlices manages rows rows; a number that is no power of two is cut down to one.
func newRowSlices(table string, rows uint32) *rowSlices {
	top := bits.Len32(rows) - 1
	s := &rowSlices{table: table, free: make([]map[uint32]struct{}, top+1)}
	for i := range s.free {
		s.free[i] = map[uint32]struct{}{}
	}
	s.free[top][0] = struct{}{}
	return s
}

// take gives out a span of 1<<bits rows.
func (s *rowSlices) take(bits int) (span, bool) {
	for order := bits; order < len(s.free); order++ {
		for first := range s.free[order] {
			delete(s.free[order], first)
			for order > bits { // keep the lower half, free the upper
				order--
				s.free[order][first+1<<order] = struct{}{}
			}
			return span{first, bits}, true
		}
	}
	return span{}, false
}

// claim takes exactly the given span, which an adopted table uses.
func (s *rowSlices) claim(want span) error {
	for order := want.bits; order < len(s.free); order++ {
		first := want.first &^ (1<<order - 1)
		if _, ok := s.free[order][first]; !ok {
			continue
		}
		delete(s.free[order], first)
		for order > want.bits { // free the half that is not wanted
			order--
			half := first + 1<<order
			if want.first >= half {
				s.free[order][first] = struct{}{}
				first = half
			} else {
				s.free[order][half] = struct{}{}
			}
		}
		return nil
	}
	return fmt.Errorf("claim rows %d to %d of %s: used twice or out of range",
		want.first, want.first+1<<want.bits-1, s.table)
}

// put gives back a span that no packet can read.
func (s *rowSlices) put(old span) {
	for ; old.bits < len(s.free)-1; old.bits++ {
		buddy := old.first ^ 1<<old.bits
		if _, ok := s.free[old.bits][buddy]; !ok {
			break
		}
		delete(s.free[old.bits], buddy)
		old.first = min(old.first, buddy)
	}
	s.free[old.bits][old.first] = struct{}{}
}

// retire gives back a span that packets may still read, once reclaim is called.
func (s *rowSlices) retire(old span) { s.retired = append(s.retired, old) }

// reclaim frees what was retired: the caller knows that no packet reads it any more.
func (s *rowSlices) reclaim() {
	for _, old := range s.retired {
		s.put(old)
	}
	s.retired = nil
}

// room is the number of rows that are free or retired.
func (s *rowSlices) room() int {
	rows := 0
	for order, firsts := range s.free {
		rows += len(firsts) << order
	}
	for _, old := range s.retired {
		rows += 1 << old.bits
	}
	return rows
}
