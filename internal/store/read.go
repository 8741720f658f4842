package store

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// reading is what a key's value says. VIPs and tables, which are most of the store, are read before they are put:
// when a State is made of all of it, several at a time.
type reading struct {
	kv *mvccpb.KeyValue
	of string // the prefix, if it is of those that were read

	vip    model.VIP
	record codec.Record

	endpoint model.EndpointKey
	table    desired.Table

	unknown bool // it has fields that this release does not know
	err     error
}

func read(kv *mvccpb.KeyValue) reading {
	r, key := reading{kv: kv}, string(kv.Key)
	switch prefix, _ := keyspace.Split(key); prefix {
	case keyspace.VIPs:
		r.of = prefix
		m := &weirv1.VIP{}
		r.vip, r.unknown, r.err = codec.DecodeMessage(key, kv.Value, m, compile.StoredVIP)
		r.record = codec.RecordOf(m)
	case keyspace.Tables:
		r.of = prefix
		r.endpoint, r.table, r.unknown, r.err = readTable(key, kv.Value)
	}
	return r
}

func readTable(key string, value []byte) (endpoint model.EndpointKey, table desired.Table, unknown bool, err error) {
	if endpoint, err = keyspace.ParseTable(key); err != nil {
		return endpoint, table, false, err
	}
	d, unknown, err := codec.DecodeKnown[codec.TableDocument](key, value)
	if err != nil {
		return endpoint, table, unknown, err
	}
	if table, err = d.Table(); err != nil {
		err = fmt.Errorf("read %s of the store: %w", key, err)
	}
	return endpoint, table, unknown, err
}

// put makes the State that is being built hold what was read.
func (r reading) put(b *builder) error {
	generation := model.Generation(r.kv.ModRevision)
	switch {
	case r.err != nil:
		return r.err
	case r.of == keyspace.VIPs:
		b.noteUnknown(string(r.kv.Key), r.kv.Value, r.unknown)
		b.putVIP(r.vip, generation)
		b.next.Records.Set(r.vip.Name, r.record)
	case r.of == keyspace.Tables:
		b.noteUnknown(string(r.kv.Key), r.kv.Value, r.unknown)
		b.putTableOf(r.endpoint, r.table, generation)
	default:
		return b.put(r.kv)
	}
	return nil
}

// readAtOnce is how many values one goroutine reads before it looks for more.
const readAtOnce = 64

// readAll reads values on all processors.
func readAll(kvs []*mvccpb.KeyValue) []reading {
	all := make([]reading, len(kvs))
	var next atomic.Int64
	var readers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		readers.Go(func() {
			for {
				from := int(next.Add(readAtOnce)) - readAtOnce
				if from >= len(kvs) {
					return
				}
				for i := from; i < min(from+readAtOnce, len(kvs)); i++ {
					all[i] = read(kvs[i])
				}
			}
		})
	}
	readers.Wait()
	return all
}

// decodeIn is decode of a document that the State being built holds.
func decodeIn[T any](b *builder, key string, data []byte) (T, error) {
	value, unknown, err := codec.DecodeKnown[T](key, data)
	if err == nil {
		b.noteUnknown(key, data, unknown)
	}
	return value, err
}

// noteUnknown keeps the document of a key if it has fields that this release does not know.
func (b *builder) noteUnknown(key string, data []byte, unknown bool) {
	if unknown {
		b.next.unknown.Set(key, slices.Clone(data))
	} else if b.next.unknown.Has(key) {
		b.next.unknown.Delete(key)
	}
}
