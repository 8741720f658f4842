package mux

import "fmt"

// ids gives out the numbers 1 to n, the longest unused first.
type ids struct {
	what string // for errors
	free []uint32
}

func newIDs(what string, n uint32) *ids {
	s := &ids{what: what, free: make([]uint32, n)}
	for i := range s.free {
		s.free[i] = uint32(i) + 1
	}
	return s
}

func (s *ids) take() (uint32, error) {
	if len(s.free) == 0 {
		return 0, fmt.Errorf("no room in table %s", s.what)
	}
	id := s.free[0]
	s.free = s.free[1:]
	return id, nil
}

// claim takes the ids that used says are in use.
func (s *ids) claim(used map[uint32]bool) {
	kept := s.free[:0]
	for _, id := range s.free {
		if !used[id] {
			kept = append(kept, id)
		}
	}
	s.free = kept
}

func (s *ids) put(id uint32) { s.free = append(s.free, id) }
