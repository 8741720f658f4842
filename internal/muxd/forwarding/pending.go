package forwarding

import (
	"maps"
	"slices"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

// Long prefix lists take seconds to write, so they are written in pieces in the background. Later updates apply
// immediately, except for parts that depend on a pending list. Pending work is ordered: add prefixes, update endpoints,
// delete prefixes.

// listPiece is how many prefixes one write has. A list with at most so many changes is written at once.
const listPiece = 16384

// pending is the pending part of the updates so far. Its maps are immutable.
type pending struct {
	lists     map[string]*model.PrefixSet             // wanted; nil: to be deleted
	endpoints map[model.EndpointKey]model.MuxEndpoint // that refer to one of them
	number    int                                     // of the set of lists, to tell it from earlier ones
}

func (p pending) any() bool { return len(p.lists) > 0 }

// listed tells how much of the lists is in the data plane.
type listed interface {
	PrefixList(name string) model.PrefixSet
	FreeSourceRows() int
}

// split splits an update into the part to apply now and the pending part. While any list is pending all changes of
// lists are, in order, as pending endpoints may still use the old ones. A snapshot is never split: it deletes what it
// lacks.
func (p pending) split(update wire.MuxUpdate, d listed, piece int) (now wire.MuxUpdate, next pending) {
	if update.Snapshot {
		return update, pending{number: p.number + 1}
	}
	if !p.any() && !long(update, d, piece) {
		return update, p
	}
	next = pending{
		lists: map[string]*model.PrefixSet{}, endpoints: map[model.EndpointKey]model.MuxEndpoint{}, number: p.number,
	}
	maps.Copy(next.lists, p.lists)
	maps.Copy(next.endpoints, p.endpoints)
	if len(update.Lists)+len(update.ListsRemoved) > 0 {
		next.number++ // the writer starts over
	}
	for _, name := range update.ListsRemoved {
		next.lists[name] = nil
	}
	for _, list := range update.Lists {
		next.lists[list.Name] = &list.Prefixes
	}
	now = update
	now.Lists, now.ListsRemoved, now.Endpoints = nil, nil, nil
	for _, e := range update.Endpoints {
		if next.names(e) {
			next.endpoints[e.Key] = e
		} else {
			delete(next.endpoints, e.Key)
			now.Endpoints = append(now.Endpoints, e)
		}
	}
	for _, key := range update.Removed {
		delete(next.endpoints, key)
	}
	return now, next
}

// long says whether the lists of an update are written in pieces. They are not if the table may lack room for them:
// then the whole update must be rejected.
func long(update wire.MuxUpdate, d listed, piece int) bool {
	most, added := 0, 0
	for _, list := range update.Lists {
		has := d.PrefixList(list.Name)
		n := list.Prefixes.Beyond(has)
		most, added = max(most, n, has.Beyond(list.Prefixes)), added+n
	}
	for _, name := range update.ListsRemoved {
		most = max(most, d.PrefixList(name).Len())
	}
	return most > piece && added <= d.FreeSourceRows()
}

// names says whether an endpoint refers to a pending list.
func (p pending) names(e model.MuxEndpoint) bool {
	return slices.ContainsFunc(slices.Concat(e.AllowLists, e.DenyLists), func(name string) bool {
		return p.lists[name] != nil
	})
}
