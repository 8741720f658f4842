package store

import (
	"testing"

	"github.com/weirlb/weir/internal/etcd"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
)

// Two managers that take each other's last node out: one of them is refused, whoever comes first.
func TestNodesDoNotVouchForEachOther(t *testing.T) {
	endpoints := []string{etcdtest.Start(t)}
	a, _ := open(t, etcd.Config{Name: "m1", Endpoints: endpoints})
	b, _ := open(t, etcd.Config{Name: "m2", Endpoints: endpoints})
	t.Cleanup(a.Presence.Open("mux1"))
	t.Cleanup(b.Presence.Open("mux2"))
	eventually(t, "both know both", func() bool { return a.State().Streams.Len() == 2 && b.State().Streams.Len() == 2 })
	for range 20 {
		go a.Presence.Exclude("mux1", "late", "mux2")
		b.Presence.Exclude("mux2", "late", "mux1")
		eventually(t, "one is out, the other was refused", func() bool {
			out := a.State().Excluded.Len()
			if out > 1 {
				t.Fatal("both are out")
			}
			return out == 1 && a.Presence.IsExcluded("mux1") != b.Presence.IsExcluded("mux2")
		})
		a.Presence.Admit("mux1")
		b.Presence.Admit("mux2")
		eventually(t, "both are in", func() bool { return a.State().Excluded.Len() == 0 && b.State().Excluded.Len() == 0 })
	}
	a.Presence.Exclude("mux1", "late", "mux3")
	eventually(t, "who is not connected does not serve", func() bool { return !a.Presence.IsExcluded("mux1") })
	if a.State().Excluded.Has("mux1") {
		t.Error("mux1 is out, and nobody serves")
	}
}
