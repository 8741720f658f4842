package secret

import (
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// A host whose workloads leave as a VIP no more is told of no new key. It may learn that by a whole list that is empty, as
// the first message of a stream whose other tables went on has it.
func TestAnEmptyListOfSourceNATEndsTheNeedOfKeys(t *testing.T) {
	s := &store.State{}
	s.FastpathKeys = []model.FastpathKey{{ID: 1}}
	s.PutVIP(model.VIP{Name: "out", Tenant: "red", Address: netip.MustParseAddr("203.0.113.1"), SNAT: &model.SNAT{
		Workloads: []model.SNATWorkload{{Address: netip.MustParseAddr("10.3.1.1"), Host: "host1"}},
	}})
	var needs Needs
	asked := func(update wire.HostUpdate) (ids []uint32) {
		needs.AddTo(&update, s, "host1")
		for _, key := range update.Keys {
			ids = append(ids, key.ID)
		}
		return ids
	}
	if ids := asked(wire.HostUpdate{Snapshot: true}); len(ids) != 1 || ids[0] != 1 {
		t.Fatalf("a host with a workload that leaves has the keys %v", ids)
	}
	s.RemoveVIP("out")
	s.FastpathKeys = []model.FastpathKey{{ID: 1}, {ID: 2}}
	if ids := asked(wire.HostUpdate{SNATSnapshot: true}); len(ids) != 1 || ids[0] != 1 {
		t.Errorf("without one it has the keys %v, want the one that it had", ids)
	}
}
