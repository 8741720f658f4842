package snat

import (
	"iter"
	"math/bits"

	"github.com/weirlb/weir/internal/model"
)

// Ranges is how many a VIP has.
const Ranges = 1 << 16 / model.RangePorts

const wordBits = 64

// Set is some of a VIP's ranges: a bitmap of 1 KiB. Its zero value is empty.
type Set struct {
	words [Ranges / wordBits]uint64
	n     int
}

// Has says whether r is in the set. A nil Set has none.
func (s *Set) Has(r model.Range) bool {
	return s != nil && s.words[r/wordBits]&(1<<(r%wordBits)) != 0
}

// Add puts r into the set.
func (s *Set) Add(r model.Range) {
	if !s.Has(r) {
		s.words[r/wordBits] |= 1 << (r % wordBits)
		s.n++
	}
}

// Remove takes r out of the set.
func (s *Set) Remove(r model.Range) {
	if s.Has(r) {
		s.words[r/wordBits] &^= 1 << (r % wordBits)
		s.n--
	}
}

// AddPorts puts in all ranges that hold one of the ports.
func (s *Set) AddPorts(ports model.PortRange) {
	for r := model.RangeOf(ports.First); r <= model.RangeOf(ports.Last); r++ {
		s.Add(r)
	}
}

// Len is how many ranges are in the set.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return s.n
}

// Clone returns a Set that may be written to.
func (s *Set) Clone() *Set {
	if s == nil {
		return &Set{}
	}
	next := *s
	return &next
}

// Free are the ranges that are in neither set, beginning at start and going round.
func Free(taken, blocked *Set, start model.Range) iter.Seq[model.Range] {
	return func(yield func(model.Range) bool) {
		words := len(Set{}.words)
		first := int(start%Ranges) / wordBits
		for i := range words + 1 {
			at := (first + i) % words
			free := ^(taken.word(at) | blocked.word(at))
			before := uint64(1)<<(start%wordBits) - 1 // of the first word, what is before start comes last
			switch i {
			case 0:
				free &^= before
			case words:
				free &= before
			}
			for ; free != 0; free &= free - 1 {
				if !yield(model.Range(at*wordBits + bits.TrailingZeros64(free))) {
					return
				}
			}
		}
	}
}

// FreeCount is how many ranges are in neither set.
func FreeCount(taken, blocked *Set) int {
	n := 0
	for i := range len(Set{}.words) {
		n += bits.OnesCount64(^(taken.word(i) | blocked.word(i)))
	}
	return n
}

func (s *Set) word(i int) uint64 {
	if s == nil {
		return 0
	}
	return s.words[i]
}

// Blocked are the ranges of a VIP that nobody gets: those with a port of its endpoints, or a reserved one, and
// the first, as port 0 is none.
func Blocked(vip model.VIP) *Set {
	s := &Set{}
	s.Add(0)
	for _, e := range vip.Endpoints {
		if e.Port != model.AllPorts {
			s.Add(model.RangeOf(e.Port))
		}
	}
	if vip.SNAT != nil {
		for _, ports := range vip.SNAT.Reserved {
			s.AddPorts(ports)
		}
	}
	return s
}
