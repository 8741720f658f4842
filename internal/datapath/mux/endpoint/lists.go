package endpoint

import (
	"fmt"

	"github.com/weirlb/weir/internal/datapath/mux/acl"
)

// holdLists notes for each change the lists that its next endpoint names, and fills those that are new: no
// packet reads them yet.
func (t *Table) holdLists(changes []change) error {
	for i := range changes {
		c := &changes[i]
		if c.next == nil {
			continue
		}
		for j, side := range c.sides {
			if err := t.Lists.Hold(side); err != nil {
				for _, held := range c.next.Lists[:j] {
					t.Lists.Release(held)
				}
				releaseLists(t.Lists, changes[:i])
				return fmt.Errorf("change endpoint %s: %w", c.key, err)
			}
		}
	}
	return nil
}

// releaseLists takes back what holdLists held.
func releaseLists(lists *acl.Lists, changes []change) {
	for i := range changes {
		if next := changes[i].next; next != nil {
			releaseListsOf(lists, next)
		}
	}
}

func releaseListsOf(lists *acl.Lists, e *Live) {
	for _, digest := range e.Lists {
		lists.Release(digest)
	}
}
