package store

import "github.com/weirlb/weir/internal/store/journal"

// note says that the State differs in a VIP, or in its conditions.
func (b *builder) note(name string) {
	change := journal.Change{Name: name}
	if vip, there := b.next.VIPs.Get(name); there {
		change.Before = &vip
	}
	b.vips = append(b.vips, change)
}

// Revision is the version of the store that the State shows.
func (s *State) Revision() uint64 { return uint64(s.revision) }

// ChangesSince returns the first change of each VIP after a revision, in their order, and the State that shows
// all of them. complete says whether the journal reaches back so far. The channel is closed when there
// is more.
func (s *Store) ChangesSince(revision uint64) (changes []journal.Change, state *State, complete bool, more <-chan struct{}) {
	changes, complete, more = s.journal.Since(int64(revision), func() { state = s.State() })
	return changes, state, complete, more
}
