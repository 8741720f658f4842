package manager

import "sync"

// places bounds how many of something there are at once: in all, and of each of those that ask.
type places struct {
	mu   sync.Mutex
	all  int
	each map[string]int
}

// takePlace takes a place of who, and returns what gives it back; nil: there is none. Bounds of 0 are none.
func (p *places) takePlace(who string, all, each int) (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if all > 0 && p.all >= all || each > 0 && p.each[who] >= each {
		return nil
	}
	if p.each == nil {
		p.each = map[string]int{}
	}
	p.all++
	p.each[who]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all--
		if p.each[who]--; p.each[who] == 0 {
			delete(p.each, who)
		}
	})
}

// taken is how many places are taken.
func (p *places) taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}
