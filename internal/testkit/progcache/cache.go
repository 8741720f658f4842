package progcache

import (
	"sync"
	"testing"

	"github.com/cilium/ebpf"
)

// Loaded is what a cache keeps.
type Loaded interface {
	// Programs are those that may have run.
	Programs() []*ebpf.Program
}

// Cache keeps what was loaded until the process ends. The zero value is empty. Its methods may be called
// from several goroutines.
type Cache[T Loaded] struct {
	mu   sync.Mutex
	free map[string][]T
}

// Take gives the test what is kept under the name, or else what load loads. When the test has ended it
// is cleared and kept; the test closes none of it.
func (s *Cache[T]) Take(t testing.TB, name string, load func() T) T {
	t.Helper()
	taken, kept := s.pop(name)
	if !kept {
		taken = load()
	}
	t.Cleanup(func() {
		if err := Clear(taken.Programs()...); err != nil {
			t.Errorf("clear the tables of the test's programs: %v", err)
			return
		}
		s.push(name, taken)
	})
	return taken
}

func (s *Cache[T]) pop(name string) (taken T, kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.free[name]
	if len(free) == 0 {
		return taken, false
	}
	s.free[name] = free[:len(free)-1]
	return free[len(free)-1], true
}

func (s *Cache[T]) push(name string, back T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == nil {
		s.free = map[string][]T{}
	}
	s.free[name] = append(s.free[name], back)
}
