package store

import (
	"net/netip"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/neighbor"
	"github.com/weirlb/weir/internal/store/keyspace"
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

// A node whose stream goes to another manager and comes back is connected, though the first one has not heard yet that the
// stream before is over; and if the other one's note of its stream comes too late, and is taken back after all others.
func TestStreamsThatComeBackAreNoted(t *testing.T) {
	endpoints := []string{etcdtest.Start(t)}
	a, _ := open(t, etcd.Config{Name: "m1", Endpoints: endpoints})
	b, _ := open(t, etcd.Config{Name: "m2", Endpoints: endpoints})
	isOpen := func() bool { return a.State().Streams.Has("switch1") && b.State().Streams.Has("switch1") }
	revision := func() int64 {
		r, err := a.etcd.Get(t.Context(), keyspace.Streams+"switch1")
		if err != nil || len(r.Kvs) == 0 {
			return 0
		}
		return r.Kvs[0].ModRevision
	}
	first := a.Presence.Open("switch1")
	eventually(t, "it is noted", isOpen)
	before := revision()
	elsewhere := b.Presence.Open("switch1")
	eventually(t, "the other one notes it", func() bool { return revision() > before })
	before = revision()
	t.Cleanup(a.Presence.Open("switch1"))
	first()
	eventually(t, "the stream that came back is noted", func() bool { return revision() > before })
	elsewhere()
	t.Cleanup(b.Presence.Open("switch2"))
	eventually(t, "the other one wrote what it has", func() bool { return a.State().Streams.Has("switch2") })
	if !isOpen() {
		t.Error("switch1 is not connected")
	}

	if _, err := a.etcd.Delete(t.Context(), keyspace.Streams+"switch1"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is gone", func() bool { return !isOpen() })
	eventually(t, "it is noted again", isOpen)
}

// The last note of a mux that can answer ARP stays when the note is taken back, with how many there were, of all managers.
func TestNotesOfAbleMuxesAreCounted(t *testing.T) {
	endpoints := []string{etcdtest.Start(t)}
	a, _ := open(t, etcd.Config{Name: "m1", Endpoints: endpoints})
	b, _ := open(t, etcd.Config{Name: "m2", Endpoints: endpoints})
	wide := neighbor.Mux{Name: "mux1", Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}
	narrow := neighbor.Mux{Name: "mux1", Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/28")}}
	reads := func(what string, able bool, last neighbor.Mux, count int64) {
		t.Helper()
		eventually(t, what, func() bool {
			muxes, puts, err := b.Presence.ReadAble(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return len(muxes) == map[bool]int{true: 1}[able] && len(puts) == 1 && puts[0].Name == last.Name &&
				slices.Equal(puts[0].Prefixes, last.Prefixes) && puts[0].Count == count
		})
	}
	a.Presence.SetAble(wide)
	reads("it is noted", true, wide, 1)
	a.Presence.SetUnable("mux1")
	reads("it is gone", false, wide, 1)
	b.Presence.SetAble(narrow)
	reads("another manager notes it", true, narrow, 2)
	b.Presence.SetAble(narrow)
	reads("it does so again", true, narrow, 3)
}

// A manager that loses its lease notes on the next one all that it noted before.
func TestAllIsNotedOnAnotherLease(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	t.Cleanup(s.Presence.Open("mux1"))
	s.Presence.SetReady(7, true)
	lease := func(prefix string) clientv3.LeaseID {
		r, err := s.etcd.Get(t.Context(), prefix, clientv3.WithPrefix())
		if err != nil || len(r.Kvs) != 1 {
			return 0
		}
		return clientv3.LeaseID(r.Kvs[0].Lease)
	}
	eventually(t, "both are noted", func() bool { return lease(keyspace.Streams) != 0 && lease(keyspace.Ready) != 0 })
	lost := lease(keyspace.Streams)
	if _, err := s.etcd.Revoke(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are noted on another lease", func() bool {
		next := lease(keyspace.Streams)
		return next != 0 && next != lost && lease(keyspace.Ready) == next
	})
}
