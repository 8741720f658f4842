// Package switchfeed tells switches their entries: what is in the store of their placements, as of a State that hosts are
// ready for.
//
//	State that muxes may have ─▶ Hub: groups of VIPs with a placement ─▶ Feed of each stream ─▶ snapshot, then deltas
//
// Invariants:
//   - a switch is told no State before hosts have it, or had their time: package publish holds it back;
//   - what a Feed costs grows with what changed for its switch;
//   - a switch is told of its own entries alone: tunnels of VIPs that it has a place for, no key and no name.
package switchfeed

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired/switchconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wake"
)

// Hub has the groups of all VIPs that have a place in a switch. It is made by New.
type Hub struct {
	Placed  wake.Signal // set when hosts are ready for a placement
	changed wake.Signal
	members func(name string) uint32 // of a group of the switch at most; 0: not known

	mu     sync.Mutex
	next   *store.State // newest that hosts are ready for; nil: none yet
	state  *store.State // that groups are of
	groups map[netip.Addr]switchconfig.Group
	feeds  map[string]map[*Feed]bool
}

// New makes a Hub. members says how many a group of a switch may have.
func New(members func(name string) uint32) *Hub {
	return &Hub{
		members: members, Placed: wake.New(), changed: wake.New(), groups: map[netip.Addr]switchconfig.Group{}, feeds: map[string]map[*Feed]bool{},
	}
}

// Publish hands over a State that hosts are ready for. It does not wait.
func (h *Hub) Publish(s *store.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next = s
	h.changed.Set()
}

// Run follows what is published, until ctx ends.
func (h *Hub) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.changed:
			h.follow()
		}
	}
}

// Generation is the newest that switches are told; 0: none yet.
func (h *Hub) Generation() model.Generation {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state == nil {
		return 0
	}
	return h.state.Generation
}

// follow takes over the State that was handed over last, and wakes the feeds that it concerns.
func (h *Hub) follow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, s := h.state, h.next
	if before != nil && before.Generation == s.Generation {
		return
	}
	h.state = s
	var delta store.Delta
	if before != nil {
		delta = s.DeltaSince(before)
	} else {
		delta = s.FullDelta()
	}
	if len(delta.Placements) > 0 {
		h.Placed.Set()
	}
	for vip, written := range touched(before, s, delta) {
		was, group := h.groups[vip], switchconfig.Group(nil)
		switch at, there := s.VIPAt(vip); {
		case !there || !s.Placements.Has(vip):
		case len(was) > 0 && !written:
			group = was
		default:
			group = switchconfig.GroupOf(s.State, at)
		}
		if h.groups[vip] = group; len(group) == 0 {
			delete(h.groups, vip)
		}
		if delta.Placements[vip] || !slices.Equal(was, group) {
			h.notify(before, vip)
			h.notify(s, vip)
		}
	}
	for name := range delta.Nodes { // TIPs take packets from the addresses that switches have
		for vip := range s.Placements.VIPsOf(name) {
			if s.Placements.At(vip).HasTIPs() {
				h.notify(s, vip)
			}
		}
	}
	for _, feeds := range h.feeds {
		for f := range feeds {
			if f.snapshotDue {
				f.wake.Set()
			}
		}
	}
}

// notify marks a VIP as due for the switches that it has a place in.
func (h *Hub) notify(s *store.State, vip netip.Addr) {
	if s == nil {
		return
	}
	for name := range s.Placements.At(vip).Places {
		for f := range h.feeds[name] {
			f.due[vip] = true
			f.wake.Set()
		}
	}
}

// touched are the addresses of the VIPs whose entries may have changed, of those that have a place before or now; true: more
// than their places was written.
func touched(before, s *store.State, delta store.Delta) map[netip.Addr]bool {
	vips := map[netip.Addr]bool{}
	add := func(vip netip.Addr, written bool) {
		if s.Placements.Has(vip) || before != nil && before.Placements.Has(vip) {
			vips[vip] = vips[vip] || written
		}
	}
	for vip := range delta.Placements {
		add(vip, false)
	}
	for key := range delta.Tables {
		add(key.VIP, true)
	}
	for name := range delta.VIPs {
		add(s.VIPs.At(name).Address, true)
		if before != nil {
			add(before.VIPs.At(name).Address, true)
		}
	}
	return vips
}

// Open begins the feed of a switch's stream.
func (h *Hub) Open(name string) (f *Feed, closed func()) {
	f = &Feed{hub: h, name: name, snapshotDue: true, due: map[netip.Addr]bool{}, sent: map[netip.Addr]netip.Addr{}, wake: wake.New()}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.feeds[name] == nil {
		h.feeds[name] = map[*Feed]bool{}
	}
	h.feeds[name][f] = true
	return f, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(h.feeds[name], f); len(h.feeds[name]) == 0 {
			delete(h.feeds, name)
		}
	}
}

// Feed is how far the stream of a switch is. Its fields are guarded by the hub's lock.
type Feed struct {
	hub         *Hub
	name        string
	wake        wake.Signal
	snapshotDue bool
	due         map[netip.Addr]bool       // VIPs whose entry may have changed
	sent        map[netip.Addr]netip.Addr // VIPs that the switch was told of on this stream and holds, and by which address
}

// Wake has something when Next may return more.
func (f *Feed) Wake() <-chan struct{} { return f.wake }

// Update is what a switch is told: entries that are new or changed, and VIPs that it holds no more.
type Update struct {
	Generation model.Generation
	Snapshot   bool // these are all entries
	Entries    []Entry
	Removed    []netip.Addr
}

// Entry is a VIP as a switch holds it.
type Entry struct {
	VIP      netip.Addr
	Inner    netip.Addr // valid: VIP is a TIP of it
	Members  []switchconfig.Member
	Announce bool
	ToTIPs   bool         // members are TIPs
	Sources  []netip.Addr // of a TIP: outer sources that packets come from
}

// Next returns what is due, if anything is and the State holds generation first. That nothing differs is told too: the
// switch reports that it has what its placements say.
func (f *Feed) Next(first model.Generation) (update Update, due bool) {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.state
	if s == nil || s.Generation < first || !f.snapshotDue && len(f.due) == 0 {
		return Update{}, false
	}
	update = Update{Generation: s.Generation, Snapshot: f.snapshotDue}
	if f.snapshotDue {
		f.snapshotDue = false
		f.due, f.sent = map[netip.Addr]bool{}, map[netip.Addr]netip.Addr{}
		for vip := range s.Placements.VIPsOf(f.name) {
			f.due[vip] = true
		}
	}
	most := h.members(f.name)
	node := s.Nodes.At(f.name)
	for vip := range f.due {
		entry, held := h.entryOf(s, vip, node, most)
		if was, told := f.sent[vip]; told && (!held || was != entry.VIP) {
			delete(f.sent, vip)
			update.Removed = append(update.Removed, was)
		}
		if held {
			f.sent[vip] = entry.VIP
			update.Entries = append(update.Entries, entry)
		}
	}
	f.keepOthers(&update, s, node, most)
	f.due = map[netip.Addr]bool{}
	slices.SortFunc(update.Entries, func(a, b Entry) int { return a.VIP.Compare(b.VIP) })
	slices.SortFunc(update.Removed, netip.Addr.Compare)
	return update, true
}

// keepOthers holds that what a VIP gives up is not taken from another one that has the same address: that VIP's entry is told
// in its place. Admission keeps addresses apart; this holds a switch to the newer owner if one slipped through.
func (f *Feed) keepOthers(update *Update, s *store.State, node model.Node, most uint32) {
	update.Removed = slices.DeleteFunc(update.Removed, func(address netip.Addr) bool {
		for _, vip := range s.Placements.HoldersOf(address) {
			if f.sent[vip] != address {
				continue
			}
			if entry, held := f.hub.entryOf(s, vip, node, most); held && !f.due[vip] {
				update.Entries = append(update.Entries, entry)
			}
			return true
		}
		return false
	})
}

// entryOf is a VIP as a switch is to hold it; false: it is not to. The hub's lock is held.
func (h *Hub) entryOf(s *store.State, vip netip.Addr, node model.Node, most uint32) (e Entry, held bool) {
	state := s.Placements.At(vip)
	place := state.Places[node.Name]
	entry := h.groups[vip].EntryOf(state, place)
	if !place.Phase.Held() || entry.Unfit(node) != "" {
		return e, false
	}
	e = Entry{VIP: place.Address(vip), Members: entry.Members(most), Announce: place.Phase.Announced(), ToTIPs: state.NamesTIPs(place)}
	if place.TIP.IsValid() {
		e.Inner, e.Sources = vip, switchconfig.SendersTo(s.State, state, place.TIP)
	}
	return e, true
}

// Message is the update as it goes to the switch.
func (u Update) Message() *weirv1.SyncSwitchResponse {
	message := &weirv1.SyncSwitchResponse{Generation: uint64(u.Generation), Snapshot: u.Snapshot}
	for _, e := range u.Entries {
		entry := &weirv1.SwitchEntry{Vip: e.VIP.String(), Announce: e.Announce}
		if e.Inner.IsValid() {
			entry.Inner, entry.Sources = e.Inner.String(), compile.AddressTexts(e.Sources)
		}
		for _, m := range e.Members {
			entry.Members = append(entry.Members, &weirv1.SwitchMember{Tunnel: m.Tunnel.String(), Entries: m.Entries, Tip: e.ToTIPs})
		}
		message.Entries = append(message.Entries, entry)
	}
	for _, vip := range u.Removed {
		message.Removed = append(message.Removed, vip.String())
	}
	return message
}
