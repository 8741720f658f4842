package alloc

import "fmt"

// IDs gives out the numbers 1 to n, the longest unused first.
type IDs struct {
	what string   // for errors
	Free []uint32 // in order
}

// NewIDs names the table for errors.
func NewIDs(what string, n uint32) *IDs {
	s := &IDs{what: what, Free: make([]uint32, n)}
	for i := range s.Free {
		s.Free[i] = uint32(i) + 1
	}
	return s
}

// Take gives out an id.
func (s *IDs) Take() (uint32, error) {
	if len(s.Free) == 0 {
		return 0, fmt.Errorf("no room in table %s", s.what)
	}
	id := s.Free[0]
	s.Free = s.Free[1:]
	return id, nil
}

// Claim takes the ids that used says are in use.
func (s *IDs) Claim(used map[uint32]bool) {
	kept := s.Free[:0]
	for _, id := range s.Free {
		if !used[id] {
			kept = append(kept, id)
		}
	}
	s.Free = kept
}

// Put gives an id back.
func (s *IDs) Put(id uint32) { s.Free = append(s.Free, id) }
