package told

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

// Bounds of what a manager may tell.
const (
	MaxEntries = 1 << 16
	MaxMembers = 1 << 18 // of all entries together
)

// Merge is what is told with one more message. It changes nothing.
func Merge(before map[netip.Addr]wire.SwitchEntry, m *weirv1.SyncSwitchResponse) (map[netip.Addr]wire.SwitchEntry, error) {
	update, err := wire.SwitchUpdateFromProto(m)
	if err != nil {
		return nil, err
	}
	next := map[netip.Addr]wire.SwitchEntry{}
	if !update.Snapshot {
		maps.Copy(next, before)
	}
	for _, vip := range update.Removed {
		delete(next, vip)
	}
	for _, e := range update.Entries {
		next[e.VIP] = e
	}
	members := 0
	for _, e := range next {
		members += len(e.Members) + len(e.Sources)
	}
	if len(next) > MaxEntries || members > MaxMembers {
		return nil, fmt.Errorf("%d entries with %d members are more than the %d and %d that a switch takes", len(next), members, MaxEntries, MaxMembers)
	}
	return next, nil
}

// Whole is all that is told as one message, of the cluster, epoch and generation of the last one.
func Whole(entries map[netip.Addr]wire.SwitchEntry, last *weirv1.SyncSwitchResponse) *weirv1.SyncSwitchResponse {
	u := wire.SwitchUpdate{Generation: model.Generation(last.GetGeneration()), Snapshot: true}
	for _, vip := range slices.SortedFunc(maps.Keys(entries), netip.Addr.Compare) {
		u.Entries = append(u.Entries, entries[vip])
	}
	p := wire.SwitchUpdateToProto(u)
	p.Cluster, p.Epoch = last.GetCluster(), last.GetEpoch()
	return p
}

// Read is what a data directory holds: what was told, the generation that it is of, and when the manager was last heard.
func Read(dataDir string) (entries map[netip.Addr]wire.SwitchEntry, generation model.Generation, heard time.Time, err error) {
	l, messages, heard, err := Open(dataDir)
	l.Close()
	for _, m := range messages {
		if entries, err = Merge(entries, m); err != nil {
			return nil, 0, heard, err
		}
		generation = model.Generation(m.GetGeneration())
	}
	return entries, generation, heard, err
}
