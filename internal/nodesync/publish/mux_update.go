package publish

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"weak"

	"google.golang.org/protobuf/proto"

	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// muxUpdates are the updates of muxes to the released State. The part that muxes have in common is computed and encoded
// once a generation, however many streams send it.
type muxUpdates struct {
	changes []muxChanges     // that were not sent to all muxes yet, by generation
	size    int              // of changes
	floor   model.Generation // changes up to it are forgotten

	generation model.Generation         // that the updates lead to
	after      map[muxStream]*muxUpdate // by what streams have
	snapshot   weak.Pointer[muxUpdate]  // it may be large: it is kept while a stream sends it
}

// muxStream is what updates of streams depend on.
type muxStream struct {
	sent   model.Generation // that was sent last
	deltas bool             // of port ranges: the mux takes them
}

// muxChanges are the keys of what differs for muxes in a State from the one before.
type muxChanges struct {
	generation model.Generation
	endpoints  []model.EndpointKey
	snat       []snatChange
	lists      []string
	networks   networkChanges
}

func (c muxChanges) size() int {
	size := 1 + len(c.endpoints) + len(c.snat) + len(c.lists) + c.networks.size()
	for _, change := range c.snat {
		size += len(change.before.Ranges) / rangesOfRow
	}
	return size
}

// add appends changes, and forgets the oldest beyond maxPending: a mux that they were not sent to gets a snapshot.
func (u *muxUpdates) add(c muxChanges) {
	u.changes, u.size = append(u.changes, c), u.size+c.size()
	for u.size > maxPending {
		u.forget(u.changes[0].generation)
	}
}

// forget forgets the changes up to a generation.
func (u *muxUpdates) forget(upTo model.Generation) {
	n := 0
	for n < len(u.changes) && u.changes[n].generation <= upTo {
		u.size -= u.changes[n].size()
		u.floor = u.changes[n].generation
		n++
	}
	u.changes = slices.Delete(u.changes, 0, n)
}

// since are the changes after a generation.
func (u *muxUpdates) since(sent model.Generation) []muxChanges {
	later := slices.IndexFunc(u.changes, func(c muxChanges) bool { return c.generation > sent })
	if later < 0 {
		return nil
	}
	return u.changes[later:]
}

// listsSince are the prefix lists that changed after a generation, in order.
func (u *muxUpdates) listsSince(sent model.Generation) []string {
	lists := map[string]bool{}
	for _, c := range u.since(sent) {
		for _, name := range c.lists {
			lists[name] = true
		}
	}
	return slices.Sorted(maps.Keys(lists))
}

// to returns the update of streams to s, or a snapshot of s.
func (u *muxUpdates) to(s *store.State, of muxStream, snapshot bool) *muxUpdate {
	if u.generation != s.Generation || u.after == nil {
		u.generation, u.after, u.snapshot = s.Generation, map[muxStream]*muxUpdate{}, weak.Pointer[muxUpdate]{}
	}
	if !snapshot {
		if u.after[of] == nil {
			u.after[of] = newMuxUpdate(s, slices.Clone(u.since(of.sent)), u.listsSince(of.sent), of.deltas, false)
		}
		return u.after[of]
	}
	update := u.snapshot.Value()
	if update == nil {
		update = newMuxUpdate(s, nil, slices.Collect(s.PrefixLists.Used()), false, true)
		u.snapshot = weak.Make(update)
	}
	return update
}

// muxUpdate is the common part of an update: the same for all streams that a muxStream describes. A mux's
// own part stands beside it: encoded messages of protobuf that are concatenated merge into one.
type muxUpdate struct {
	lists  []string // prefix lists that changed, or all
	encode func() ([]byte, error)
}

func newMuxUpdate(s *store.State, changes []muxChanges, lists []string, deltas, snapshot bool) *muxUpdate {
	return &muxUpdate{lists: lists, encode: sync.OnceValues(func() ([]byte, error) {
		update := wire.MuxUpdate{
			Generation: s.Generation, Snapshot: snapshot, Keys: s.FastpathKeys, SYNSecrets: s.SYNSecrets,
			Routes: nodeconfig.Routes(s.State), KeepSNAT: s.Restored.Pending(), Networks: muxNetworks(s),
		}
		if snapshot {
			addAll(&update, s)
		} else {
			addChanges(&update, s, changes, deltas)
		}
		for _, name := range lists {
			if s.PrefixLists.IsUsed(name) {
				update.Lists = append(update.Lists, model.MuxPrefixList{Name: name, Prefixes: s.PrefixLists.Prefixes(name)})
			} else {
				update.ListsRemoved = append(update.ListsRemoved, name)
			}
		}
		encoded, err := proto.Marshal(wire.MuxUpdateToProto(update))
		if err != nil {
			return nil, fmt.Errorf("encode the update of muxes to generation %d: %w", s.Generation, err)
		}
		return encoded, nil
	})}
}

// addAll adds all endpoints and all of source NAT to a snapshot.
func addAll(update *wire.MuxUpdate, s *store.State) {
	update.HashKey = s.HashKey
	update.Endpoints = make([]model.MuxEndpoint, 0, s.Tables.Len())
	for key := range s.Tables.Keys() {
		if e, there := muxEndpoint(s, key); there {
			update.Endpoints = append(update.Endpoints, e)
		}
	}
	for key := range s.Ports.Clients() {
		if of, there := muxSNAT(s, key); there {
			update.SNAT = append(update.SNAT, of)
		}
	}
	addAllNetworks(&update.Networks, s)
}

// addChanges adds what changed as it is in s, or its removal, in order. deltas: of port ranges what differs will do.
func addChanges(update *wire.MuxUpdate, s *store.State, changes []muxChanges, deltas bool) {
	endpoints, before := map[model.EndpointKey]bool{}, map[model.SNATKey]snat.List{}
	for _, c := range changes {
		for _, key := range c.endpoints {
			endpoints[key] = true
		}
		for _, change := range c.snat {
			if _, known := before[change.key]; !known { // the oldest change has what the stream was sent
				before[change.key] = change.before
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(endpoints), model.EndpointKey.Compare) {
		if e, there := muxEndpoint(s, key); there {
			update.Endpoints = append(update.Endpoints, e)
		} else {
			update.Removed = append(update.Removed, key)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(before), model.SNATKey.Compare) {
		if of, there := muxSNAT(s, key); there {
			update.SNAT = append(update.SNAT, of)
		} else {
			update.SNATRemoved = append(update.SNATRemoved, key)
		}
	}
	if deltas {
		update.SNATBefore = before
	}
	addNetworkChanges(&update.Networks, s, changes)
}
