package publish

import (
	"fmt"
	"maps"
	"net/netip"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

func newMuxHub() *Hub { return New(nil, func(model.Generation, *store.State, time.Time) {}) }

// write is the next State, in which a VIP is another or gone, and what muxes have to hear of it.
func write(s *store.State, name string, change func(*store.State)) heldState {
	next := s.Clone()
	next.Generation++
	change(next)
	held := heldState{state: next}
	for _, state := range []*store.State{s, next} {
		vip := state.VIPs.At(name)
		for _, e := range vip.Endpoints {
			held.keys = append(held.keys, desired.Key(vip, e))
			held.lists = append(held.lists, e.Lists()...)
		}
		if vip.SNAT != nil {
			held.snat = append(held.snat, model.SNATKey{VIP: vip.Address, Address: vip.SNAT.Workloads[0].Address})
		}
	}
	return held
}

func putVIP(s *store.State, vip model.VIP) {
	s.PutVIP(vip)
	for _, e := range vip.Endpoints {
		s.Tables.Set(desired.Key(vip, e), desired.Table{})
	}
}

// sharedBytes are those that a message has of what all muxes are told.
func sharedBytes(t *testing.T, f *MuxFeed) *byte {
	t.Helper()
	message, err := f.Next(0)
	if err != nil || message == nil {
		t.Fatalf("got %v: %v", message, err)
	}
	return &message.ProtoReflect().GetUnknown()[0]
}

// However many muxes there are, what they are told alike is encoded once a generation, and so are their snapshots while
// one of them is on its way.
func TestUpdatesAreEncodedOnce(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nobody holds a snapshot here while it is on its way
	h := newMuxHub()
	s := &store.State{HashKey: flowhash.Key{1}, Generation: 7}
	h.held = []heldState{{state: s}}
	h.release(7)
	feeds := make([]*MuxFeed, 100)
	for i := range feeds {
		feeds[i], _ = h.OpenMux(fmt.Sprintf("mux%d", i), true, nil, false)
	}
	for generation := range 3 {
		encodings := map[*byte]bool{}
		for _, f := range feeds {
			encodings[sharedBytes(t, f)] = true
		}
		if len(encodings) != 1 {
			t.Errorf("generation %d was encoded %d times", 7+generation, len(encodings))
		}
		held := write(s, "web", func(s *store.State) {
			putVIP(s, newVIP("web", "203.0.113.1", on("host1", fmt.Sprintf("10.3.1.%d", generation+1))))
		})
		h.held, s = append(h.held, held), held.state
		h.release(s.Generation)
	}
}

// toldMux is a mux with what it must hear of yet, kept for it alone.
type toldMux struct {
	feed             *MuxFeed
	whole            bool
	keys, lists, has map[string]bool
	snat             map[model.SNATKey]bool
	byText           map[string]model.EndpointKey
}

func (m *toldMux) note(held heldState) {
	for _, key := range held.keys {
		m.keys[key.String()], m.byText[key.String()] = true, key
	}
	for _, list := range held.lists {
		m.lists[list] = true
	}
	for _, key := range held.snat {
		m.snat[key] = true
	}
}

// update is what the mux is to be told, computed for it alone.
func (m *toldMux) update(s *store.State, pool []model.PoolMember) wire.MuxUpdate {
	u := wire.MuxUpdate{
		Generation: s.Generation, Snapshot: m.whole, Pool: pool, Withdraw: m.feed.withdraw,
		Keys: s.FastpathKeys, SYNSecrets: s.SYNSecrets, Routes: nodeconfig.Routes(s.State),
	}
	lists := slices.Sorted(maps.Keys(m.lists))
	if m.whole {
		u.HashKey, lists = s.HashKey, slices.Collect(s.PrefixLists.Used())
		m.keys = map[string]bool{}
		for key := range s.Tables.Keys() {
			m.keys[key.String()], m.byText[key.String()] = true, key
		}
		m.snat = maps.Collect(func(yield func(model.SNATKey, bool) bool) {
			for key := range s.Ports.Clients() {
				if !yield(key, true) {
					return
				}
			}
		})
	}
	for key := range m.snat {
		if of, there := muxSNAT(s, key); there {
			u.SNAT = append(u.SNAT, of)
		} else if !m.whole {
			u.SNATRemoved = append(u.SNATRemoved, key)
		}
	}
	slices.SortFunc(u.SNAT, func(a, b model.MuxSNAT) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(u.SNATRemoved, model.SNATKey.Compare)
	for text := range m.keys {
		if e, there := muxEndpoint(s, m.byText[text]); there {
			u.Endpoints = append(u.Endpoints, e)
		} else if !m.whole {
			u.Removed = append(u.Removed, m.byText[text])
		}
	}
	slices.SortFunc(u.Endpoints, func(a, b model.MuxEndpoint) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(u.Removed, model.EndpointKey.Compare)
	m.addLists(&u, s, lists)
	m.whole, m.keys, m.lists, m.snat = false, map[string]bool{}, map[string]bool{}, map[model.SNATKey]bool{}
	return u
}

// addLists adds the lists that are due, with the chunks that the mux has not.
func (m *toldMux) addLists(u *wire.MuxUpdate, s *store.State, lists []string) {
	for _, name := range lists {
		if !s.PrefixLists.IsUsed(name) {
			u.ListsRemoved = append(u.ListsRemoved, name)
			continue
		}
		u.Lists = append(u.Lists, model.MuxPrefixList{Name: name, Prefixes: s.PrefixLists.Prefixes(name)})
		for _, c := range s.PrefixLists.Prefixes(name).Chunks() {
			if !m.has[c.ID()] {
				u.Chunks = append(u.Chunks, c)
			}
			m.has[c.ID()] = true
		}
	}
	if m.whole || len(lists) > 0 {
		m.has = map[string]bool{}
		for name := range s.PrefixLists.Used() {
			for _, c := range s.PrefixLists.Prefixes(name).Chunks() {
				m.has[c.ID()] = true
			}
		}
	}
}

// drawChange writes a VIP, or removes it.
func drawChange(t *rapid.T, s *store.State, name string) {
	if old := s.VIPs.At(name); old.Name != "" && rapid.Bool().Draw(t, "gone") {
		s.Tables.Delete(desired.Key(old, old.Endpoints[0]))
		s.RemoveVIP(name)
		return
	}
	vip := newVIP(name, "203.0.113."+fmt.Sprint(name[0]), on("host1", "10.3.1.1"))
	lists := rapid.SampledFrom([]string{"list0", "list1", "list2"})
	vip.Endpoints[0].AllowLists = rapid.SliceOfNDistinct(lists, 0, 2, rapid.ID).Draw(t, "lists")
	if rapid.Bool().Draw(t, "snat") {
		vip.SNAT = &model.SNAT{Workloads: []model.SNATWorkload{{Address: netip.AddrFrom4([4]byte{10, 9, 0, name[0]}), Host: "host1"}}}
	}
	vip.FlowLimit = rapid.Uint32Range(1, 9).Draw(t, "limit")
	putVIP(s, vip)
}

// received is a message as it arrives.
func received(t *rapid.T, sent *weirv1.SyncMuxResponse) *weirv1.SyncMuxResponse {
	encoded, err := proto.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	var got weirv1.SyncMuxResponse
	if err := proto.Unmarshal(encoded, &got); err != nil {
		t.Fatal(err)
	}
	return &got
}

// Whatever is written, and however far muxes are behind, each is told what it would be told if there were no other.
func TestMuxesAreToldWhatConcernsThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newMuxHub()
		s := &store.State{HashKey: flowhash.Key{1}, Generation: 7, SYNSecrets: []model.SYNSecret{{ID: 1}}}
		for i := range 3 {
			prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32)
			name := fmt.Sprintf("list%d", i)
			s.PrefixLists.Set(name, model.PrefixList{Name: name, Prefixes: model.NewPrefixSet([]netip.Prefix{prefix})})
		}
		h.held = []heldState{{state: s}}
		h.release(7)
		muxes := make([]*toldMux, 3)
		for i := range muxes {
			feed, _ := h.OpenMux(fmt.Sprintf("mux%d", i), true, nil, false)
			muxes[i] = &toldMux{
				feed: feed, whole: true, keys: map[string]bool{}, snat: map[model.SNATKey]bool{}, lists: map[string]bool{},
				has: map[string]bool{}, byText: map[string]model.EndpointKey{},
			}
		}
		oneMux := func(t *rapid.T) *toldMux { return rapid.SampledFrom(muxes).Draw(t, "mux") }
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "VIP")
				held := write(s, name, func(s *store.State) { drawChange(t, s, name) })
				h.held, s = append(h.held, held), held.state
			},
			"release": func(t *rapid.T) {
				for _, held := range h.held {
					for _, m := range muxes {
						m.note(held)
					}
				}
				h.release(s.Generation)
			},
			"resend": func(t *rapid.T) {
				m := oneMux(t)
				h.Resend(m.feed.mux)
				m.whole = true
			},
			"pool": func(t *rapid.T) {
				h.notifyPool([]model.PoolMember{{Name: rapid.SampledFrom([]string{"mux0", "mux1"}).Draw(t, "member")}})
				oneMux(t).feed.withdraw = rapid.Bool().Draw(t, "withdraw")
			},
			"take": func(t *rapid.T) {
				m := oneMux(t)
				message, err := m.feed.Next(0)
				if err != nil || message == nil {
					if err != nil || len(m.keys)+len(m.lists) > 0 || m.whole {
						t.Fatalf("nothing is due: %v", err)
					}
					return
				}
				got, want := received(t, message), wire.MuxUpdateToProto(m.update(h.released, h.pool))
				if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
					t.Fatalf("%s is told otherwise (-want +got):\n%s", m.feed.mux, diff)
				}
			},
		})
	})
}

// A mux that is too far behind gets a snapshot.
func TestMuxesFarBehindGetASnapshot(t *testing.T) {
	h := newMuxHub()
	s := &store.State{Generation: 7}
	h.held = []heldState{{state: s}}
	h.release(7)
	slow, _ := h.OpenMux("slow", true, nil, false)
	quick, _ := h.OpenMux("quick", true, nil, false)
	sharedBytes(t, slow)
	for range maxPending/2 + 1 {
		sharedBytes(t, quick)
		held := write(s, "web", func(s *store.State) { putVIP(s, newVIP("web", "203.0.113.1")) })
		held.keys = held.keys[:1]
		h.held, s = append(h.held, held), held.state
		h.release(s.Generation)
	}
	if !slow.isSnapshotDue(s) || quick.isSnapshotDue(s) {
		t.Errorf("a snapshot is due: slow %t, quick %t", slow.isSnapshotDue(s), quick.isSnapshotDue(s))
	}
	sharedBytes(t, slow)
	sharedBytes(t, quick)
	h.held = append(h.held, write(s, "web", func(*store.State) {}))
	h.release(s.Generation + 1)
	if len(h.updates.changes) != 1 || slow.isSnapshotDue(s) {
		t.Errorf("%d changes are kept when all muxes were told", len(h.updates.changes))
	}
}

// BenchmarkMuxUpdates is one generation that changes a VIP of 64 backends, encoded for a hundred muxes.
func BenchmarkMuxUpdates(b *testing.B) {
	h := newMuxHub()
	s := &store.State{HashKey: flowhash.Key{1}, Generation: 7}
	h.held = []heldState{{state: s}}
	h.release(7)
	feeds := make([]*MuxFeed, 100)
	for i := range feeds {
		feeds[i], _ = h.OpenMux(fmt.Sprintf("mux%d", i), true, nil, false)
	}
	for b.Loop() {
		for _, f := range feeds {
			message, err := f.Next(0)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := proto.Marshal(message); err != nil {
				b.Fatal(err)
			}
		}
		held := write(s, "web", func(s *store.State) {
			vip, table := newVIP("web", "203.0.113.1"), desired.Table{Buckets: make([]model.Slot, 4096)}
			for i := range 64 {
				backend := on("host1", fmt.Sprintf("10.3.1.%d", i))
				vip.Endpoints[0].Backends = append(vip.Endpoints[0].Backends, backend)
				at := netip.AddrPortFrom(backend.Address, backend.Port)
				table.Rows = append(table.Rows, desired.Row{Slot: model.Slot(i + 1), Backend: at, Tunnel: backend.Address})
			}
			for i := range table.Buckets {
				table.Buckets[i] = model.Slot(i%64 + 1)
			}
			s.PutVIP(vip)
			s.Tables.Set(desired.Key(vip, vip.Endpoints[0]), table)
		})
		h.held, s = append(h.held, held), held.state
		h.release(s.Generation)
	}
}
