package eventlog

import (
	"cmp"
	"context"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// known is what pruning goes by of an event.
type known struct {
	tenant string
	order  uint64 // of its last write: its revision when all were read, or a number behind those
}

// note takes over what was written at once.
func (r *Recorder) note(written map[string]Event) {
	if r.known == nil {
		return
	}
	r.order++
	for name, e := range written {
		r.known[name] = known{e.Tenant, r.order}
	}
	if len(r.known) > 2*maxEvents { // most have expired
		r.known = nil
	}
}

// prune deletes the oldest events beyond the bound, of those tenants that have the most. All are read only if what is stored is
// not what this recorder has written, as after events have expired.
func (r *Recorder) prune(ctx context.Context) error {
	response, err := r.log.etcd.Get(ctx, keyspace.Events, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err == nil && response.Count <= maxEvents {
		return nil
	}
	if err == nil && int64(len(r.known)) != response.Count {
		err = r.readAll(ctx)
	}
	if err != nil {
		return etcd.Explain("count events", err)
	}
	names := slices.SortedFunc(maps.Keys(r.known), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.known[a].order, r.known[b].order), cmp.Compare(a, b))
	})
	owners := make([]string, len(names))
	for i, name := range names {
		owners[i] = r.known[name].tenant
	}
	var ops []clientv3.Op
	for _, i := range excess(owners, maxEvents) {
		ops = append(ops, clientv3.OpDelete(keyspace.Events+names[i]))
		delete(r.known, names[i])
	}
	for some := range slices.Chunk(ops, etcd.SafeOperations) {
		if err := r.log.commit(ctx, some); err != nil {
			r.known = nil
			return etcd.Explain("delete old events", err)
		}
	}
	return nil
}

// readAll reads what is stored.
func (r *Recorder) readAll(ctx context.Context) error {
	response, err := r.log.etcd.Get(ctx, keyspace.Events, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	r.known, r.order = make(map[string]known, len(response.Kvs)), uint64(response.Header.Revision)
	for _, kv := range response.Kvs {
		name := string(kv.Key[len(keyspace.Events):])
		k := known{order: uint64(kv.ModRevision)}
		if e, err := readEvent(kv); err == nil {
			k.tenant = e.Tenant
		}
		r.known[name] = k
	}
	return nil
}

// excess are the places of events that are too many, given the tenants of all, the oldest first: the oldest of whoever has the
// most. So a tenant keeps an equal share, however much happens to others.
func excess(owners []string, most int) []int {
	counts, drops := map[string]int{}, map[string]int{}
	for _, owner := range owners {
		counts[owner]++
	}
	for range len(owners) - most {
		largest := ""
		for owner, n := range counts {
			if n > counts[largest] || n == counts[largest] && owner < largest {
				largest = owner
			}
		}
		counts[largest]--
		drops[largest]++
	}
	var places []int
	for i, owner := range owners {
		if drops[owner] > 0 {
			drops[owner]--
			places = append(places, i)
		}
	}
	return places
}
