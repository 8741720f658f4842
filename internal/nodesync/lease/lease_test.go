package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/neighbor"
	"github.com/weirlb/weir/internal/store"
)

// vips are how many VIPs the muxes have.
const vips = 20

// notes are a store's, as one manager writes and reads them.
type notes struct {
	able     map[string]neighbor.Mux
	puts     map[string]neighbor.Put
	err      error
	excluded string
}

func (n *notes) SetAble(m neighbor.Mux) {
	n.able[m.Name], n.puts[m.Name] = m, neighbor.Put{Mux: m, Count: n.puts[m.Name].Count + 1}
}
func (n *notes) SetUnable(mux string) { delete(n.able, mux) }
func (n *notes) IsExcluded(mux string) bool {
	return mux == n.excluded
}

func (n *notes) ReadAble(context.Context) (all []neighbor.Mux, puts []neighbor.Put, err error) {
	for _, name := range []string{"mux1", "mux2"} {
		if m, is := n.able[name]; is {
			all = append(all, m)
		}
	}
	return all, slices.Collect(maps.Values(n.puts)), n.err
}

type rig struct {
	*Leases
	notes *notes
	time  time.Time
	state *store.State
}

func newRig() *rig {
	r := &rig{notes: &notes{able: map[string]neighbor.Mux{}, puts: map[string]neighbor.Put{}}, time: time.Unix(1e9, 0), state: &store.State{Generation: 1}}
	lan := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	for i, name := range []string{"mux1", "mux2"} {
		r.state.PutNode(model.Node{Name: name, Role: model.RoleMux, NeighborPrefixes: lan, MAC: "02:00:00:00:00:0" + string(rune('1'+i))})
	}
	r.state.PutNode(model.Node{Name: "mux3", Role: model.RoleMux})
	r.state.PutVIP(model.VIP{Name: "elsewhere", Address: netip.MustParseAddr("198.51.100.1")})
	for i := range vips {
		r.state.PutVIP(model.VIP{Name: fmt.Sprintf("vip%d", i), Address: netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})})
	}
	r.Leases = New(func() (*store.State, <-chan struct{}) { return r.state, nil }, r.notes, func() time.Time { return r.time }, slog.New(slog.DiscardHandler))
	return r
}

// turn is a round of Run.
func (r *rig) turn(t *testing.T, after time.Duration) {
	t.Helper()
	r.time = r.time.Add(after)
	r.fill(r.state)
	r.dropSilent()
	r.read(t.Context())
}

func (r *rig) renew(t *testing.T, mux string, digest uint64) *weirv1.RenewNeighborsResponse {
	t.Helper()
	response, err := r.RenewNeighbors(context.Background(), &weirv1.RenewNeighborsRequest{Name: mux, Ready: true, Digest: digest})
	if err != nil {
		t.Fatalf("%s: %v", mux, err)
	}
	return response
}

// Muxes share the VIPs of their prefixes, wait for each other, and one that falls silent leaves all to the other.
func TestLeases(t *testing.T) {
	r := newRig()
	if _, err := r.RenewNeighbors(context.Background(), &weirv1.RenewNeighborsRequest{Name: "mux3", Ready: true}); err == nil {
		t.Error("a mux without neighbor prefixes has a lease")
	}
	if _, err := r.RenewNeighbors(context.Background(), &weirv1.RenewNeighborsRequest{Name: "mux1", Ready: true}); err == nil {
		t.Error("a lease without a read of the store")
	}
	r.turn(t, neighbor.Interval)
	first := r.renew(t, "mux1", 0)
	if len(first.GetVips()) != vips || first.GetDigest() != 0 || first.GetVips()[0].GetWait().AsDuration() <= neighbor.Lease || len(first.GetMuxes()) != 2 {
		t.Errorf("alone it has %v", first)
	}
	for range 10 {
		r.turn(t, neighbor.Interval)
		r.renew(t, "mux1", 0)
	}
	held := r.renew(t, "mux1", 0)
	if held.GetDigest() == 0 || held.GetVips()[0].GetWait().AsDuration() != 0 {
		t.Errorf("after a lease it waits: %v", held)
	}
	if again := r.renew(t, "mux1", held.GetDigest()); len(again.GetVips()) != 0 || again.GetLease().AsDuration() > neighbor.Lease {
		t.Errorf("what it has is sent again: %v", again)
	}
	if _, err := r.RenewNeighbors(context.Background(), &weirv1.RenewNeighborsRequest{Name: "mux2", Ready: true}); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("a mux that is not noted yet gets a lease of nothing, which ends the one that it has: %v", err)
	}
	r.turn(t, neighbor.Interval)
	one, two := r.renew(t, "mux1", held.GetDigest()), r.renew(t, "mux2", 0)
	if len(one.GetVips())+len(two.GetVips()) != vips || len(two.GetVips()) == 0 {
		t.Errorf("they have %v and %v", one, two)
	}
	for range 5 {
		r.turn(t, neighbor.Interval)
		two = r.renew(t, "mux2", 0)
	}
	if len(two.GetVips()) != vips || r.notes.able["mux1"].Name != "" {
		t.Errorf("mux1 is silent, and mux2 has %v", two)
	}
	r.notes.excluded = "mux2"
	if r.turn(t, neighbor.Interval); len(r.notes.able) != 0 {
		t.Errorf("out of the pool, able are %v", r.notes.able)
	}
}

// Without the store leases end. When it is back owners are certain, unless muxes were added.
func TestNoLeaseWithoutTheStore(t *testing.T) {
	r := newRig()
	_, _ = r.RenewNeighbors(context.Background(), &weirv1.RenewNeighborsRequest{Name: "mux1", Ready: true})
	for range 12 {
		r.turn(t, neighbor.Interval)
		r.renew(t, "mux1", 0)
	}
	r.notes.err = errors.New("no quorum")
	for left := neighbor.Lease - neighbor.Interval; left > 0; left -= neighbor.Interval {
		r.turn(t, neighbor.Interval)
		if got := r.renew(t, "mux1", 0).GetLease().AsDuration(); got != left {
			t.Fatalf("the lease lasts %s, want %s", got, left)
		}
	}
	r.turn(t, neighbor.Interval)
	if _, err := r.RenewNeighbors(context.Background(), &weirv1.RenewNeighborsRequest{Name: "mux1", Ready: true}); err == nil {
		t.Error("a lease without the store")
	}
	r.notes.err = nil
	r.turn(t, neighbor.Interval)
	if back := r.renew(t, "mux1", 0); back.GetDigest() == 0 {
		t.Errorf("no mux was added, and it is not certain who owned what: %v", back)
	}
	r.notes.SetAble(neighbor.Mux{Name: "mux2", Prefixes: r.state.Nodes.At("mux2").NeighborPrefixes})
	r.notes.SetUnable("mux2")
	r.turn(t, neighbor.Interval)
	back, waits := r.renew(t, "mux1", 0), 0
	for _, v := range back.GetVips() {
		if v.GetWait().AsDuration() > 0 {
			waits++
		}
	}
	if back.GetDigest() != 0 || waits == 0 || waits == vips {
		t.Errorf("after a mux was added and is gone %d of %d VIPs wait", waits, vips)
	}
}

// The note of a mux that went to another manager and back is written again.
func TestANoteThatIsLostIsWrittenAgain(t *testing.T) {
	r := newRig()
	_, _ = r.RenewNeighbors(context.Background(), &weirv1.RenewNeighborsRequest{Name: "mux1", Ready: true})
	r.turn(t, neighbor.Interval)
	writes := r.notes.puts["mux1"].Count
	delete(r.notes.able, "mux1") // by the other manager
	for range 2 {
		_, _ = r.RenewNeighbors(context.Background(), &weirv1.RenewNeighborsRequest{Name: "mux1", Ready: true})
		r.turn(t, neighbor.Interval)
	}
	if more := r.notes.puts["mux1"].Count - writes; more != 1 {
		t.Errorf("written %d times more", more)
	}
}

// A mux that says in turn that it can and cannot answer is written to the store seldom, and others take its VIPs over.
func TestAFlappingMuxIsNotedSeldom(t *testing.T) {
	r := newRig()
	ask := func(ready bool) {
		_, _ = r.RenewNeighbors(context.Background(), &weirv1.RenewNeighborsRequest{Name: "mux2", Ready: ready})
	}
	var other *weirv1.RenewNeighborsResponse
	seconds := 60
	for i := range seconds * int(time.Second/neighbor.Interval) {
		ask(i%2 == 0)
		_, _ = r.RenewNeighbors(context.Background(), &weirv1.RenewNeighborsRequest{Name: "mux1", Ready: true})
		r.turn(t, neighbor.Interval)
		if got := r.renew(t, "mux1", 0); other == nil || len(got.GetVips()) == vips && got.GetDigest() != 0 {
			other = got
		}
	}
	if most := int64(notesBurst) + int64(time.Duration(seconds)*time.Second/noteEvery); r.notes.puts["mux2"].Count > most {
		t.Errorf("in %d s it was noted %d times, want at most %d", seconds, r.notes.puts["mux2"].Count, most)
	}
	if other.GetDigest() == 0 {
		t.Error("the other mux never had all VIPs without a wait")
	}
	r.time = r.time.Add(notesBurst * noteEvery)
	ask(false)
	if ask(true); r.notes.able["mux2"].Name == "" {
		t.Error("a mux that was quiet for a while is not noted at once")
	}
}
