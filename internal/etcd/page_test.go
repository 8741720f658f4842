package etcd

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// What a page may have follows the size of the values.
func TestPagesAreBounded(t *testing.T) {
	values := func(size int) []*mvccpb.KeyValue { return []*mvccpb.KeyValue{{Value: make([]byte, size)}, {}} }
	for _, c := range []struct {
		limit int64
		size  int
		want  int64
	}{{64, 100, 128}, {4096, 100, DefaultPageKeys}, {4096, 1 << 20, 8}, {64, 64 << 20, 1}} {
		if got := nextLimit(c.limit, values(c.size), DefaultPageKeys); got != c.want {
			t.Errorf("after %d keys of %d bytes the next page has %d, want %d", c.limit, c.size, got, c.want)
		}
	}
}
