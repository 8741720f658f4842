package publish

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync/publish/steered"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// rangesManager is a manager that writes and streams port ranges, and all lists that it ever had.
type rangesManager struct {
	hub     *Hub
	state   *store.State // the newest
	cluster int          // a restore begins another
	had     map[string][]model.Range
}

func newRangesManager() *rangesManager {
	return &rangesManager{state: &store.State{HashKey: flowhash.Key{1}, Generation: 7}, had: map[string][]model.Range{}}
}

func listName(cluster int, key model.SNATKey, written model.Generation) string {
	return fmt.Sprint(cluster, key, written)
}

// start starts the manager's hub, which knows of no stream, with what the store has.
func (m *rangesManager) start() {
	m.hub = newMuxHub()
	m.hub.state, m.hub.steered, m.hub.held = m.state, steered.New(m.state.State), []heldState{{state: m.state}}
	m.release()
	m.hub.snat.confirm(m.state.Generation, m.hub.hosts)
	for key, h := range m.state.Ports.All() {
		m.had[listName(m.cluster, key, m.state.PortsWritten.At(key))] = h.Ranges
	}
}

func (m *rangesManager) release() {
	m.hub.state = m.state
	m.hub.release(m.state.Generation)
}

// write writes the next State, with other ranges of some workloads.
func (m *rangesManager) write(change func(next *store.State), lists map[model.SNATKey][]model.Range) {
	next, delta := m.state.Clone(), store.Delta{VIPs: map[string]bool{}, Ports: map[model.SNATKey]bool{}}
	next.Generation++
	if change != nil {
		change(next)
		delta.VIPs["web"] = true
	}
	for key, ranges := range lists {
		if delta.Ports[key] = true; ranges == nil {
			next.Ports.Delete(key)
			next.PortsWritten.Delete(key)
			continue
		}
		next.Ports.Set(key, snatport.Allocation{Host: "host1", Ranges: ranges})
		next.PortsWritten.Set(key, next.Generation)
		m.had[listName(m.cluster, key, next.Generation)] = ranges
	}
	m.hub.held = append(m.hub.held, heldState{state: next, snat: changedSNAT(m.state, next, delta)})
	m.state = next
}

// rangesNode is a mux or a host. Its stream may lose messages, deliver them twice and in another order.
type rangesNode struct {
	name           string
	isHost, deltas bool
	mux            *MuxFeed
	host           *HostFeed
	closed         func()
	flight         [][]byte
	faulty         bool // the stream was not what TCP is
	told           wire.PortLists
	has            map[model.SNATKey]snat.List
}

// open ends the stream that there is, and begins another.
func (n *rangesNode) open(h *Hub) {
	if n.closed != nil {
		n.closed()
	}
	n.flight, n.faulty, n.told = nil, false, wire.PortLists{}
	if n.isHost {
		n.host, n.closed = h.OpenHost(n.name, n.deltas)
	} else {
		n.mux, n.closed = h.OpenMux(n.name, false, nil, n.deltas)
	}
}

// send has the manager send what is due, if anything is.
func (n *rangesNode) send(t *rapid.T) bool {
	var message proto.Message
	if n.isHost {
		update, due := n.host.Next(0)
		if !due {
			return false
		}
		message = wire.HostUpdateToProto(update)
	} else {
		update, err := n.mux.Next(0)
		if err != nil {
			t.Fatal(err)
		}
		if update == nil {
			return false
		}
		message = update
	}
	encoded, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	n.flight = append(n.flight, encoded)
	return true
}

// receive takes the next message over. What does not fit has the node open its stream anew.
func (n *rangesNode) receive(t *rapid.T, m *rangesManager) {
	encoded := n.flight[0]
	n.flight = n.flight[1:]
	lists := map[model.SNATKey]snat.List{}
	var snapshot bool
	var removed []model.SNATKey
	if n.isHost {
		var p weirv1.SyncHostResponse
		n.decode(t, encoded, &p)
		if err := n.complete(t, p.GetSnat(), func() error { return n.told.CompleteHost(&p) }); err != nil {
			n.open(m.hub)
			return
		}
		u, err := wire.HostUpdateFromProto(&p)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range u.SNAT {
			lists[of.Key] = snat.List{Written: of.Written, Ranges: of.Ranges}
		}
		snapshot, removed = u.SNATSnapshot, u.SNATRemoved
	} else {
		var p weirv1.SyncMuxResponse
		n.decode(t, encoded, &p)
		if err := n.complete(t, p.GetSnat(), func() error { return n.told.CompleteMux(&p) }); err != nil {
			n.open(m.hub)
			return
		}
		u, err := wire.MuxUpdateFromProto(&p, new(wire.PrefixChunks))
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range u.SNAT {
			lists[of.Key] = snat.List{Written: of.Written, Ranges: of.Ranges}
		}
		snapshot, removed = u.Snapshot, u.SNATRemoved
	}
	if snapshot {
		clear(n.has)
	}
	for _, key := range removed {
		delete(n.has, key)
	}
	for key, list := range lists {
		if had := m.had[listName(m.cluster, key, list.Written)]; !slices.Equal(had, list.Ranges) {
			t.Fatalf("%s has %v of %s, written at %d: the manager wrote %v", n.name, list.Ranges, key, list.Written, had)
		}
		n.has[key] = list
	}
}

func (n *rangesNode) decode(t *rapid.T, encoded []byte, p proto.Message) {
	if err := proto.Unmarshal(encoded, p); err != nil {
		t.Fatal(err)
	}
}

// complete puts whole lists into a message. A stream that is as TCP is has no delta that does not fit; an older release is
// sent none.
func (n *rangesNode) complete(t *rapid.T, snat any, complete func() error) error {
	if !n.deltas {
		for _, of := range deltasOf(snat) {
			if of != nil {
				t.Fatalf("%s, of an older release, is sent the delta %v", n.name, of)
			}
		}
		return nil
	}
	err := complete()
	if err != nil && !n.faulty {
		t.Fatalf("%s refuses what it is sent in order: %v", n.name, err)
	}
	return err
}

func deltasOf(list any) (all []*weirv1.RangesDelta) {
	switch list := list.(type) {
	case []*weirv1.MuxSNAT:
		for _, of := range list {
			all = append(all, of.GetDelta())
		}
	case []*weirv1.HostSNAT:
		for _, of := range list {
			all = append(all, of.GetDelta())
		}
	}
	return all
}

// drain has the node receive all that is on its way and due.
func (n *rangesNode) drain(t *rapid.T, m *rangesManager) {
	for n.send(t) || len(n.flight) > 0 {
		for len(n.flight) > 0 {
			n.receive(t, m)
		}
	}
}

// compare holds that the node has what the manager has; extra: it may have more workloads.
func (n *rangesNode) compare(t *rapid.T, s *store.State, extra bool) {
	want := 0
	for key := range s.Ports.Clients() {
		of, there := muxSNAT(s, key)
		if host, _, isOn := hostSNAT(s, key); n.isHost {
			there = isOn && host == n.name
		}
		has, had := n.has[key]
		if had != there && !extra || there && (!had || has.Written != of.Written || !slices.Equal(has.Ranges, of.Ranges)) {
			t.Fatalf("%s has %+v of %s, there %t: the manager has %+v", n.name, has, key, there, of)
		}
		if there {
			want++
		}
	}
	if !extra && len(n.has) != want {
		t.Fatalf("%s has %v: %d workloads are there", n.name, n.has, want)
	}
}

func drawVIP(t *rapid.T) model.VIP {
	vip := newVIP("web", "203.0.113.1")
	defaults := model.SNAT{}.WithDefaults()
	vip.Tenant, vip.SNAT = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant"), &defaults
	for i := range 3 {
		if rapid.IntRange(0, 3).Draw(t, "lists") > 0 {
			host := rapid.SampledFrom([]string{"host1", "host2"}).Draw(t, "host")
			vip.SNAT.Workloads = append(vip.SNAT.Workloads, model.SNATWorkload{Address: rangesKey(i).Address, Host: host})
		}
	}
	return vip
}

func rangesKey(i int) model.SNATKey {
	return model.SNATKey{VIP: netip.MustParseAddr("203.0.113.1"), Address: netip.AddrFrom4([4]byte{10, 9, 0, byte(i)})}
}

// drawList is a list that differs from another in a few ranges.
func drawList(t *rapid.T, from []model.Range) []model.Range {
	is := map[model.Range]bool{}
	for _, r := range from {
		is[r] = true
	}
	if len(from) == 0 {
		for r := range model.Range(20) {
			is[2*r] = true
		}
	}
	for range rapid.IntRange(0, 6).Draw(t, "changes") {
		r := model.Range(rapid.IntRange(0, 60).Draw(t, "range"))
		is[r] = !is[r]
	}
	next := []model.Range{}
	for r := range model.Range(61) {
		if is[r] {
			next = append(next, r)
		}
	}
	return next
}

// rangesWorld is a manager with a mux, one of an older release, and two hosts.
type rangesWorld struct {
	*rangesManager
	nodes []*rangesNode
	saved *store.State // a backup
}

func newRangesWorld(t *rapid.T) *rangesWorld {
	w := &rangesWorld{rangesManager: newRangesManager(), nodes: []*rangesNode{
		{name: "mux1", deltas: true}, {name: "old-mux"}, {name: "host1", deltas: true, isHost: true}, {name: "host2", deltas: true, isHost: true},
	}}
	w.state.PutVIP(drawVIP(t))
	for _, n := range w.nodes {
		n.has = map[model.SNATKey]snat.List{}
	}
	w.saved = w.state
	w.restart()
	return w
}

// restart restarts the manager, so that all streams begin anew.
func (w *rangesWorld) restart() {
	w.start()
	for _, n := range w.nodes {
		n.closed = nil
		n.open(w.hub)
	}
}

func (w *rangesWorld) drawWrite(t *rapid.T) {
	lists := map[model.SNATKey][]model.Range{}
	for range rapid.IntRange(1, 2).Draw(t, "workloads") {
		key := rangesKey(rapid.IntRange(0, 2).Draw(t, "workload"))
		if lists[key] = drawList(t, w.state.Ports.At(key).Ranges); rapid.IntRange(0, 9).Draw(t, "gone") == 0 {
			lists[key] = nil
		}
	}
	w.write(nil, lists)
}

func (w *rangesWorld) drawRelease(t *rapid.T) {
	w.release()
	if rapid.Bool().Draw(t, "muxes have it") {
		w.hub.snat.confirm(w.state.Generation, w.hub.hosts)
	}
}

// actions are what may happen.
func (w *rangesWorld) actions() map[string]func(*rapid.T) {
	ofNode := func(do func(*rapid.T, *rangesNode)) func(*rapid.T) {
		return func(t *rapid.T) { do(t, rapid.SampledFrom(w.nodes).Draw(t, "node")) }
	}
	return map[string]func(*rapid.T){
		"write": w.drawWrite, "release": w.drawRelease,
		"write and release": func(t *rapid.T) {
			for range rapid.IntRange(1, 4).Draw(t, "writes") {
				w.drawWrite(t)
				w.drawRelease(t)
			}
		},
		"write the VIP": func(t *rapid.T) {
			vip := drawVIP(t)
			w.write(func(next *store.State) { next.PutVIP(vip) }, nil)
		},
		"send":    ofNode(func(t *rapid.T, n *rangesNode) { n.send(t) }),
		"deliver": ofNode(func(t *rapid.T, n *rangesNode) { n.drain(t, w.rangesManager) }),
		"lose": ofNode(func(t *rapid.T, n *rangesNode) {
			if n.send(t) || len(n.flight) > 0 {
				n.flight, n.faulty = n.flight[:len(n.flight)-1], true
			}
		}),
		"double": ofNode(func(t *rapid.T, n *rangesNode) {
			if n.send(t) || len(n.flight) > 0 {
				n.flight, n.faulty = append(n.flight, n.flight[len(n.flight)-1]), true
			}
		}),
		"swap": ofNode(func(_ *rapid.T, n *rangesNode) {
			if len(n.flight) > 1 {
				n.flight[0], n.flight[1], n.faulty = n.flight[1], n.flight[0], true
			}
		}),
		"end a stream": ofNode(func(_ *rapid.T, n *rangesNode) { n.open(w.hub) }),
		"restart a node": ofNode(func(_ *rapid.T, n *rangesNode) {
			clear(n.has)
			n.open(w.hub)
		}),
		"restart the manager": func(*rapid.T) { w.restart() },
		"save":                func(*rapid.T) { w.saved = w.state },
		"restore": func(*rapid.T) {
			w.state = w.saved
			w.cluster++
			w.restart()
		},
	}
}

// arrive has all that was written arrive.
func (w *rangesWorld) arrive(t *rapid.T) {
	w.release()
	w.hub.snat.confirm(w.state.Generation, w.hub.hosts)
	for _, n := range w.nodes {
		n.drain(t, w.rangesManager)
	}
}

// Whatever is lost, comes twice or in another order, whoever starts anew, and after a restore: a node has of a workload a
// list that the manager wrote, at the write that it says. When all has arrived, it has what the manager has: without faults
// at once, else with the next change of each list, and of what is gone after an audit.
func TestNodesHaveTheRangesThatTheManagerHas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newRangesWorld(t)
		t.Repeat(w.actions())
		w.arrive(t)
		for _, n := range w.nodes {
			if !n.faulty {
				n.compare(t, w.state, false)
			}
		}
		w.drawWrite(t)
		w.release()
		w.hub.snat.confirm(w.state.Generation, w.hub.hosts)
		for _, n := range w.nodes {
			if rapid.Bool().Draw(t, "loses it") && n.send(t) {
				n.flight, n.faulty = nil, true
			}
		}
		lists := map[model.SNATKey][]model.Range{}
		for i := range 3 {
			lists[rangesKey(i)] = append(slices.Clone(w.state.Ports.At(rangesKey(i)).Ranges), model.Range(100+w.state.Generation))
		}
		w.write(nil, lists)
		w.arrive(t)
		for _, n := range w.nodes {
			n.compare(t, w.state, n.faulty)
			w.hub.Resend(n.name) // as an audit of digests does
		}
		w.arrive(t)
		for _, n := range w.nodes {
			n.compare(t, w.state, false)
		}
	})
}

// A grant of 8 ranges to one that has 800 is told in few bytes to a mux and a host that take deltas.
func TestGrantIsToldInFewBytes(t *testing.T) {
	m := newRangesManager()
	vip := newVIP("web", "203.0.113.1")
	vip.SNAT = &model.SNAT{Workloads: []model.SNATWorkload{{Address: rangesKey(0).Address, Host: "host1"}}}
	m.state.PutVIP(vip)
	m.start()
	list := []model.Range{}
	for r := range model.Range(800) {
		list = append(list, 100+9*r)
	}
	m.write(nil, map[model.SNATKey][]model.Range{rangesKey(0): list})
	m.release()
	for round, deltas := range []bool{false, true} {
		mux, _ := m.hub.OpenMux(fmt.Sprint(deltas), false, nil, deltas)
		host, _ := m.hub.OpenHost("host1", deltas)
		m.hub.snat.confirm(m.state.Generation, m.hub.hosts)
		sharedBytes(t, mux)
		host.Next(0)
		for i := range 8 {
			list = append(list, model.Range(7400+16*round+i))
		}
		m.write(nil, map[model.SNATKey][]model.Range{rangesKey(0): slices.Clone(list)})
		m.release()
		m.hub.snat.confirm(m.state.Generation, m.hub.hosts)
		message, err := mux.Next(0)
		update, due := host.Next(0)
		if err != nil || !due {
			t.Fatalf("nothing is due for the host, or %v", err)
		}
		toMux, toHost := proto.Size(message), proto.Size(wire.HostUpdateToProto(update))
		t.Logf("deltas %t: a grant of 8 ranges beside 800 costs a mux %d bytes, the host %d", deltas, toMux, toHost)
		if deltas && max(toMux, toHost) > 200 || !deltas && min(toMux, toHost) < 1600 {
			t.Errorf("with deltas, %t: a mux is told %d bytes, the host %d", deltas, toMux, toHost)
		}
	}
}
