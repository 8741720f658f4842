package store

import (
	clientv3 "go.etcd.io/etcd/client/v3"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// Fabric is the network of a data center, as of a generation.
type Fabric struct {
	compile.KeptFabric

	Written model.Generation
}

// fabrics are the fabrics of the State that is being built.
type fabrics struct{ *builder }

// decode takes over a fabric.
func (b fabrics) decode(key, name string, value []byte, generation model.Generation) error {
	f, unknown, err := codec.DecodeMessage(key, value, &weirv1.Fabric{}, compile.StoredFabric)
	if err == nil {
		b.noteUnknown(key, value, unknown)
		b.next.Fabrics.Set(name, Fabric{f, generation})
	}
	return err
}

// fabricOperations adds the writes of fabrics.
func (c Change) fabricOperations(s *State, ops []clientv3.Op, errs []error) ([]clientv3.Op, []error) {
	for _, f := range c.Fabrics {
		key := keyspace.Fabrics + f.Message.GetName()
		value, err := encodeMessageIn(s, key, f.Message)
		ops, errs = append(ops, clientv3.OpPut(key, value)), append(errs, err)
	}
	for _, name := range c.DeleteFabrics {
		ops = append(ops, clientv3.OpDelete(keyspace.Fabrics+name))
	}
	return ops, errs
}

// apply makes the State that is being built hold the fabrics of a change.
func (b fabrics) apply(c Change, generation model.Generation) {
	for _, name := range c.DeleteFabrics {
		b.next.Fabrics.Delete(name)
	}
	for _, f := range c.Fabrics {
		b.next.Fabrics.Set(f.Message.GetName(), Fabric{f, generation})
	}
}
