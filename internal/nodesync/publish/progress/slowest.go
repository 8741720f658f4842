package progress

import "github.com/weirlb/weir/internal/model"

// Slowest finds the least generation that any of some muxes has processed. Recording one mux costs O(1). Only when the last of
// the slowest gets on all are looked at, and Least grows then: that is once a generation at most, however many muxes there are.
// The zero value is of no muxes.
type Slowest struct {
	processed map[string]model.Generation // by mux
	least     model.Generation
	behind    int // muxes that have processed no more than least; 0: there are none

	looks int // at muxes, to find least: tests count them
}

// NewSlowest begins with what muxes have processed, which is its own from then on.
func NewSlowest(processed map[string]model.Generation) Slowest {
	s := Slowest{processed: processed}
	s.find()
	return s
}

// Set records what a mux has processed.
func (s *Slowest) Set(mux string, generation model.Generation) {
	if s.processed == nil {
		s.processed = map[string]model.Generation{}
	}
	was, there := s.processed[mux]
	s.processed[mux] = generation
	if there && was == s.least {
		s.behind--
	}
	switch {
	case generation < s.least:
		s.least, s.behind = generation, 1
	case generation == s.least:
		s.behind++
	}
	if s.behind == 0 {
		s.find()
	}
}

// Remove forgets a mux.
func (s *Slowest) Remove(mux string) {
	was, there := s.processed[mux]
	if !there {
		return
	}
	delete(s.processed, mux)
	if was == s.least {
		s.behind--
	}
	if s.behind == 0 {
		s.find()
	}
}

// Least is the least generation; there is false if there are no muxes.
func (s *Slowest) Least() (least model.Generation, there bool) { return s.least, s.behind > 0 }

func (s *Slowest) find() {
	s.least, s.behind = 0, 0
	for _, generation := range s.processed {
		s.looks++
		switch {
		case s.behind == 0 || generation < s.least:
			s.least, s.behind = generation, 1
		case generation == s.least:
			s.behind++
		}
	}
}
