// Package inflight bounds how many of something are under way at once: in all, and of each caller.
package inflight

import (
	"sync"
)

// Limit counts what is under way.
type Limit struct {
	mu   sync.Mutex
	all  int
	each map[string]int
}

// Acquire takes a place of a caller, and returns what gives it back; nil: there is none. Bounds of 0 are none.
func (p *Limit) Acquire(who string, all, each int) (release func()) {
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

// Taken is how many places are taken.
func (p *Limit) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all
}
