package acl

import (
	"sync"

	"github.com/weirlb/weir/internal/model"
)

// PrefixLists are the lists of sources that endpoints name.
type PrefixLists struct {
	mu    *sync.Mutex
	lists *Lists
}

// NewPrefixLists are those of the lists, under the data plane's lock.
func NewPrefixLists(mu *sync.Mutex, lists *Lists) *PrefixLists { return &PrefixLists{mu, lists} }

// PrefixList is what the tables have of a prefix list.
func (p *PrefixLists) PrefixList(name string) model.PrefixSet {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists.Prefixes(name)
}

// FreeSourceRows is how many rows lists can take beside those that are there.
func (p *PrefixLists) FreeSourceRows() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists.Room()
}
