package rpc

import (
	"errors"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// A node takes nothing that is older than what it has seen, of whichever manager, and says what it has seen.
func TestNodesRefuseWhatIsOlder(t *testing.T) {
	for _, c := range []struct {
		name                       string
		cluster, epoch, generation uint64
		refused                    bool
	}{
		{"the same again", 1, 20, 200, false},
		{"a later generation", 1, 20, 201, false},
		{"a later epoch", 1, 21, 200, false},
		{"an older generation of the same epoch", 1, 20, 199, true},
		{"an older epoch", 1, 19, 200, true},
		{"an older epoch that claims a later generation", 1, 19, 300, true},
		{"a later epoch with an older generation", 1, 21, 199, true},
		{"a manager that does not know the epoch", 1, 0, 200, false},
		{"another cluster", 2, 5, 5, false},
	} {
		f := &fence{}
		if err := f.pass(&weirv1.SyncMuxResponse{Cluster: 1, Epoch: 20, Generation: 200}); err != nil {
			t.Fatal(err)
		}
		err := f.pass(&weirv1.SyncMuxResponse{Cluster: c.cluster, Epoch: c.epoch, Generation: c.generation})
		if stale := errors.As(err, new(*StaleError)); stale != c.refused {
			t.Errorf("%s: %v, want refused: %t", c.name, err, c.refused)
		}
		request := &weirv1.SyncMuxRequest{}
		f.stamp(request)
		if c.refused && (request.GetEpoch() != 20 || request.GetGeneration() != 200) {
			t.Errorf("%s: the node says that it has seen epoch %d, generation %d", c.name, request.GetEpoch(), request.GetGeneration())
		}
	}
}
