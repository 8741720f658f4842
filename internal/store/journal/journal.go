// Package journal holds the latest changes of VIPs, for those who watch them and fell behind.
package journal

import (
	"sort"
	"sync"

	"github.com/weirlb/weir/internal/model"
)

// size is how many changes of VIPs a manager can tell.
const size = 8192

// Change is one change of a VIP or of its conditions.
type Change struct {
	Name     string
	Before   *model.VIP // nil: there was none
	revision int64
}

// Journal holds the latest changes, in order.
type Journal struct {
	mu      sync.Mutex
	start   int64 // changes of later revisions are here
	changes []Change
	changed chan struct{} // closed when there are more
}

// New makes an empty Journal.
func New() *Journal { return &Journal{changed: make(chan struct{})} }

// Begin forgets everything: the State was read anew, of that revision. show makes it the newest.
func (j *Journal) Begin(revision int64, show func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	show()
	j.start, j.changes = revision, nil
	close(j.changed)
	j.changed = make(chan struct{})
}

// Add takes over the changes that led to the State of a revision. show makes it the newest: nobody who looks finds it without
// them.
func (j *Journal) Add(changes []Change, revision int64, show func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	show()
	if len(changes) == 0 {
		return
	}
	for i := range changes {
		changes[i].revision = revision
	}
	j.changes = append(j.changes, changes...)
	if over := len(j.changes) - size; over > 0 {
		j.start = j.changes[over-1].revision
		j.changes = append([]Change(nil), j.changes[over:]...)
	}
	close(j.changed)
	j.changed = make(chan struct{})
}

// Since returns the first change of each VIP after a revision, in their order. complete says whether the journal reaches
// back so far. The channel is closed when there is more. look is called before the next State is shown: the one that it finds
// shows those that are returned, and no others.
func (j *Journal) Since(revision int64, look func()) (changes []Change, complete bool, more <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	look()
	if revision < j.start {
		return nil, false, j.changed
	}
	from := sort.Search(len(j.changes), func(i int) bool { return j.changes[i].revision > revision })
	seen := map[string]bool{}
	for _, change := range j.changes[from:] {
		if !seen[change.Name] {
			seen[change.Name] = true
			changes = append(changes, change)
		}
	}
	return changes, true, j.changed
}
