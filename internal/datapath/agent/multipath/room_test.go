package multipath

import (
	"testing"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/multipath"
)

// TestManagersKnowTheRoom has tables be as large as managers think.
func TestManagersKnowTheRoom(t *testing.T) {
	spec, err := bpf.LoadAgent()
	if err != nil {
		t.Fatal(err)
	}
	if homes, peers := spec.Maps["mptcp_homes"].MaxEntries, spec.Maps["chain_peers"].MaxEntries; homes != multipath.MaxEndpoints*multipath.Cells || peers != multipath.MaxPeers {
		t.Errorf("there is room for %d homes and %d peers", homes, peers)
	}
}
