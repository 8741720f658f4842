package store

import (
	"fmt"
	"net/netip"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// decodePlacement takes over where a VIP is of switches; nil: there is nothing of it any more.
func (b *builder) decodePlacement(key, address string, value []byte, generation model.Generation) error {
	vip, err := netip.ParseAddr(address)
	if err != nil {
		return fmt.Errorf("read key %s of the store: %w", key, err)
	}
	state := placementpolicy.State{}
	if value != nil {
		if state, err = decodeIn[placementpolicy.State](b, key, value); err != nil {
			return err
		}
	}
	b.putPlacement(vip, state, generation)
	return nil
}

// placementOperations adds the writes of where VIPs are of switches.
func (c Change) placementOperations(s *State, ops []clientv3.Op, errs []error) ([]clientv3.Op, []error) {
	for vip, state := range c.Placements {
		key := keyspace.Placements + vip.String()
		if state.Empty() {
			ops = append(ops, clientv3.OpDelete(key))
			continue
		}
		value, err := encodeIn(s, key, state)
		ops, errs = append(ops, clientv3.OpPut(key, value)), append(errs, err)
	}
	return ops, errs
}

// putPlacement takes over where a VIP is of switches; an empty State is forgotten. Whoever follows the VIP hears of it.
func (b *builder) putPlacement(vip netip.Addr, state placementpolicy.State, generation model.Generation) {
	if at, there := b.next.VIPAt(vip); there {
		b.note(at.Name)
	}
	b.next.Placements.Put(vip, state)
	if b.next.PlacementWritten.Delete(vip); !state.Empty() {
		b.next.PlacementWritten.Set(vip, generation)
	}
	b.delta.Placements[vip] = true
}
