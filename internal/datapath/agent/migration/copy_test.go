package migration

import (
	"hash/maphash"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// Workloads' state as a version has left it that did not count rows: what else it notes stays.
func TestSNATStatesAreMigrated(t *testing.T) {
	spec, err := bpf.LoadAgent()
	check(t, err)
	ours := spec.Maps["snat_stats"]
	word, long := &btf.Int{Name: "unsigned int", Size: 4}, &btf.Int{Name: "unsigned long long", Size: 8}
	old := ours.Copy()
	old.ValueSize = 32
	old.Value = &btf.Struct{Name: "snat_stat", Size: 32, Members: []btf.Member{
		{Name: "flows", Type: word},
		{Name: "queued", Type: word, Offset: 32},
		{Name: "low_notified", Type: long, Offset: 64},
		{Name: "refused_until", Type: long, Offset: 128},
		{Name: "begun", Type: long, Offset: 192},
	}}
	from, err := ebpf.NewMap(old)
	check(t, err)
	defer from.Close()
	to, err := ebpf.NewMap(ours)
	check(t, err)
	defer to.Close()
	check(t, from.Put(uint32(7), struct {
		Flows, Queued       uint32
		Asked, Until, Begun uint64
	}{1, 2, 3, 4, 5}))
	m := &Migration{spec: spec, live: map[string]*ebpf.Map{"snat_stats": from}, seed: maphash.MakeSeed(), copied: map[uint64]struct{}{}}
	check(t, m.copyTable("snat_stats", to, ebpf.UpdateAny))
	var got bpf.AgentSnatStat
	check(t, to.Lookup(uint32(7), &got))
	if want := (bpf.AgentSnatStat{Queued: 2, LowNotified: 3, RefusedUntil: 4, Begun: 5}); got != want {
		t.Errorf("became %+v, not %+v", got, want)
	}
}
