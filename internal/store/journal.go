package store

import (
	"sort"
	"sync"

	"github.com/weirlb/weir/internal/model"
)

// journalSize is how many changes of VIPs a manager can tell those who watch and fell behind.
const journalSize = 8192

// VIPChange is one change of a VIP or of its conditions.
type VIPChange struct {
	Name     string
	Before   *model.VIP // nil: there was none
	revision int64
}

// journal holds the latest changes of VIPs, in order.
type journal struct {
	mu      sync.Mutex
	start   int64 // changes of later revisions are here
	changes []VIPChange
	changed chan struct{} // closed when there are more
}

func newJournal() journal { return journal{changed: make(chan struct{})} }

// begin forgets everything: the State was read anew, of that revision.
func (j *journal) begin(revision int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.start, j.changes = revision, nil
	close(j.changed)
	j.changed = make(chan struct{})
}

// note says that the State differs in a VIP, or in its conditions.
func (b *builder) note(name string) {
	change := VIPChange{Name: name}
	if vip, there := b.next.VIPs.Get(name); there {
		change.Before = &vip
	}
	b.vips = append(b.vips, change)
}

// add takes over the changes of a State that is the Store's already.
func (j *journal) add(b *builder) {
	if len(b.vips) == 0 {
		return
	}
	for i := range b.vips {
		b.vips[i].revision = b.next.revision
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.changes = append(j.changes, b.vips...)
	if over := len(j.changes) - journalSize; over > 0 {
		j.start = j.changes[over-1].revision
		j.changes = append([]VIPChange(nil), j.changes[over:]...)
	}
	close(j.changed)
	j.changed = make(chan struct{})
}

// Revision is the version of the store that the State shows.
func (s *State) Revision() uint64 { return uint64(s.revision) }

// ChangesSince returns the first change of each VIP after a revision, in their order, and the State that shows
// all of them. complete says whether the journal reaches back so far. The channel is closed when there
// is more.
func (s *Store) ChangesSince(revision uint64) (changes []VIPChange, state *State, complete bool, more <-chan struct{}) {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	state = s.State() // shows what the journal has: add comes after
	j := &s.journal
	if int64(revision) < j.start {
		return nil, state, false, j.changed
	}
	from := sort.Search(len(j.changes), func(i int) bool { return j.changes[i].revision > int64(revision) })
	seen := map[string]bool{}
	for _, change := range j.changes[from:] {
		if !seen[change.Name] {
			seen[change.Name] = true
			changes = append(changes, change)
		}
	}
	return changes, state, true, j.changed
}
