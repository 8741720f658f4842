package network

import (
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// What a write finds as it wants it has the version that it had, which is that of the transaction if another change in
// it wrote that: the State of a decision has such a one under a number that is made up.
func TestVersionsOfWrites(t *testing.T) {
	s := &store.State{Generation: 10}
	for _, c := range []struct {
		change  string
		written model.Generation
		want    uint64
	}{
		{rpc.Updated, 7, 20}, {rpc.Created, 0, 20}, {rpc.Unchanged, 7, 7}, {rpc.Unchanged, 10, 10}, {rpc.Unchanged, 11, 20},
	} {
		if got := VersionOf(c.change, 20, VersionBefore(s, c.written)); got != c.want {
			t.Errorf("%s in generation 20, written at %d before: version %d, want %d", c.change, c.written, got, c.want)
		}
	}
}
