package store

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// networks are the virtual networks and the overlay of the State that is being built.
type networks struct{ *builder }

// decode takes over a virtual network, or the overlay.
func (b networks) decode(key string, value []byte, generation model.Generation) error {
	if key == keyspace.Overlay {
		overlay, unknown, err := codec.DecodeMessage(key, value, &weirv1.Overlay{}, compile.StoredOverlay)
		if err == nil {
			b.noteUnknown(key, value, unknown)
			b.setOverlay(&overlay, generation)
		}
		return err
	}
	n, unknown, err := codec.DecodeMessage(key, value, &weirv1.VirtualNetwork{}, compile.StoredNetwork)
	if err == nil {
		b.noteUnknown(key, value, unknown)
		b.put(n, generation)
	}
	return err
}

func (b networks) put(n vnet.Network, generation model.Generation) {
	b.noteWanted(n.Name)
	b.next.Networks.Put(n)
	b.next.NetworkWritten.Set(n.Name, generation)
	b.delta.Networks[n.Name] = true
}

func (b networks) remove(name string) {
	b.noteWanted(name)
	b.next.Networks.Remove(name)
	b.next.NetworkWritten.Delete(name)
	b.delta.Networks[name] = true
}

// setOverlay takes over the overlay; nil: there is none.
func (b networks) setOverlay(overlay *vnet.Overlay, generation model.Generation) {
	if (overlay == nil) != (b.next.Networks.Overlay == nil) { // VIPs are attached, or detached
		for n := range b.next.Networks.All() {
			b.noteWanted(n.Name)
			b.delta.Networks[n.Name] = true
		}
	}
	b.next.Networks.Overlay, b.next.OverlayWritten, b.delta.Overlay = overlay, generation, true
}

// setNumber takes over the number of a host; zero: it has none.
func (b networks) setNumber(host string, n network.Number) {
	if b.next.Networks.Numbers.Remove(host); n != (network.Number{}) {
		b.next.Networks.Numbers.Put(host, n)
	}
	b.delta.HostNumbers[host] = true
}

// noteWanted has those who watch VIPs hear of the ones that want to be in a network: whether they are may change.
func (b networks) noteWanted(network string) {
	for vip := range b.next.Networks.Wanting(network) {
		b.note(vip)
	}
}

// networkOperations adds the writes of virtual networks and of the overlay.
func (c Change) networkOperations(s *State, ops []clientv3.Op, errs []error) ([]clientv3.Op, []error) {
	for _, n := range c.Networks {
		value, err := encodeMessageIn(s, keyspace.Networks+n.Name, compile.NetworkMessage(n))
		ops, errs = append(ops, clientv3.OpPut(keyspace.Networks+n.Name, value)), append(errs, err)
	}
	for _, name := range c.DeleteNetworks {
		ops = append(ops, clientv3.OpDelete(keyspace.Networks+name))
	}
	switch {
	case c.Overlay != nil:
		value, err := encodeMessageIn(s, keyspace.Overlay, compile.OverlayMessage(*c.Overlay))
		ops, errs = append(ops, clientv3.OpPut(keyspace.Overlay, value)), append(errs, err)
	case c.DeleteOverlay:
		ops = append(ops, clientv3.OpDelete(keyspace.Overlay))
	}
	for host, n := range c.HostNumbers {
		if n == (network.Number{}) {
			ops = append(ops, clientv3.OpDelete(keyspace.HostNumbers+host))
			continue
		}
		value, err := encodeIn(s, keyspace.HostNumbers+host, n)
		ops, errs = append(ops, clientv3.OpPut(keyspace.HostNumbers+host, value)), append(errs, err)
	}
	return ops, errs
}

// apply makes the State that is being built hold the virtual networks and the overlay of a change.
func (b networks) apply(c Change, generation model.Generation) {
	for _, name := range c.DeleteNetworks {
		b.remove(name)
	}
	switch {
	case c.Overlay != nil:
		b.setOverlay(c.Overlay, generation)
	case c.DeleteOverlay:
		b.setOverlay(nil, 0)
	}
	for _, n := range c.Networks {
		b.put(n, generation)
	}
	for host, n := range c.HostNumbers {
		b.setNumber(host, n)
	}
}
