package echo

// Pattern reads endless bytes that are always the same, and in which any shift or loss shows: its
// period is a prime.
type Pattern struct{ at int }

const period = 65521

var pattern = makePattern()

func makePattern() (p [2 * period]byte) {
	state := uint32(1)
	for i := range period {
		state = state*1664525 + 1013904223 // Numerical Recipes' generator
		p[i] = byte(state >> 24)
		p[period+i] = p[i]
	}
	return p
}

func (p *Pattern) Read(to []byte) (int, error) {
	n := copy(to, pattern[p.at:])
	p.at = (p.at + n) % period
	return n, nil
}
