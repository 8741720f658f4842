// Package placement moves VIPs into switches and out of them while a manager leads, as their owners ask and as hosts and
// switches report. Each step is that of package placementpolicy, and is in the store before anybody acts on it.
package placement

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protojson"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/controller/reported"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/wake"
)

const (
	// lookInterval is the time between two looks at what switches say to other managers, and at the clock.
	lookInterval = 200 * time.Millisecond
	// lookPause is the time between two looks at least: a State may follow the one before at once. lookShare is how much
	// longer it is than a look took: thousands of switches may report at once.
	lookPause = 10 * time.Millisecond
	lookShare = 4
	// sweepInterval is how often VIPs are looked at that are not settled, and one of sweepParts parts of all others. In between
	// only those are of which something that they wait for was written or reported: there may be tens of thousands.
	sweepInterval = 2 * time.Second
	sweepParts    = 10
	// mostSteps bounds the VIPs that take a step in one look: what is written at once tells each switch of its VIPs at once.
	mostSteps = 1024
)

// Controller moves VIPs into switches and out of them.
type Controller struct {
	Store     *store.Store
	Published func() model.Generation // that hosts are ready for
	// Latest is the newest that a switch said, if that was to this manager and is as new as what the store has.
	Latest func(name string, stored nodestatus.Status) (nodestatus.Status, *weirv1.NodeStatus, bool)
	// Reports are what hosts say.
	Reports *reported.Source
	// Said is set when a switch runs another generation, and Ready when hosts are ready for a placement: a look is due.
	Said, Ready wake.Signal
	Events      interface{ Record(eventlog.Event) }
	Now         func() time.Time
	Log         *slog.Logger
}

// Run moves VIPs until ctx ends. Where each is is in the store; for how long it has been there, and for how long switches
// have been silent, begins anew with each leader.
func (c *Controller) Run(ctx context.Context) error {
	w := c.Watch()
	for {
		state, changed := c.Store.Watch()
		if err := w.Step(ctx, state, c.Now()); err != nil && ctx.Err() == nil {
			c.Log.Warn("VIPs are not moved into or out of switches, trying again", "err", err)
		}
		wake.After(ctx, max(lookPause, lookShare*w.took))
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-c.Said:
		case <-c.Ready:
		case <-time.After(lookInterval):
		}
	}
}

// timer is since when this leader has seen the phase of a place, and that the switch runs it.
type timer struct {
	phase placementpolicy.Phase
	since time.Time
	runs  time.Time // zero: it does not
	// routed is since when the switch has not said that it has no route to the VIP's tunnels; zero: it says so.
	routed time.Time
}

// Watch follows where VIPs are.
type Watch struct {
	*Controller

	last   *store.State
	swept  time.Time           // when the last part of them was looked at
	part   int                 // which part that was
	open   map[netip.Addr]bool // VIPs that are not settled
	look   map[netip.Addr]bool // VIPs to look at
	looked netip.Addr          // the last one
	took   time.Duration       // that the last look did

	moving    map[netip.Addr]awaits // VIPs on their way
	ready     model.Generation      // that hosts have, in this step
	published model.Generation      // and at the last look
	timed     time.Time             // when those that wait for a time were looked at

	timers map[netip.Addr]map[string]timer // by VIP and switch
	silent map[string]time.Time            // by switch, since when it has had no stream
	told   map[string]bool                 // switches of whose silence people were told
	said   map[string]report               // by switch with a place
	groups map[netip.Addr]group            // of VIPs that are to be in hardware
	hosts  *refusals
}

// report is what a switch said last.
type report struct {
	detail     *weirv1.NodeStatus // as it came to this manager
	stored     time.Time          // when it came, if that was to another manager
	generation model.Generation
	refused    map[string]string // by VIP, why
	more       bool              // others are refused too
	unrouted   map[string]bool   // VIPs and TIPs that it has withdrawn, as it has no route to their tunnels
	moreAre    bool              // others are too
	tables     *weirv1.SwitchStatus
}

// equals says whether the switch said the same of its VIPs before.
func (r report) equals(before report) bool {
	return r.generation == before.generation && r.more == before.more && maps.Equal(r.refused, before.refused) &&
		r.moreAre == before.moreAre && maps.Equal(r.unrouted, before.unrouted)
}

// tells says whether the switch has said what became of a VIP as of a generation.
func (r report) tells(vip netip.Addr, of model.Generation) bool {
	return r.generation >= of && (!r.more || r.refused[vip.String()] != "")
}

// took says whether the switch has said that it has a VIP as of a generation.
func (r report) took(vip netip.Addr, of model.Generation) bool {
	return r.tells(vip, of) && r.refused[vip.String()] == ""
}

// Watch begins to follow where VIPs are.
func (c *Controller) Watch() *Watch {
	return &Watch{
		Controller: c, look: map[netip.Addr]bool{}, open: map[netip.Addr]bool{}, moving: map[netip.Addr]awaits{}, timers: map[netip.Addr]map[string]timer{}, silent: map[string]time.Time{},
		told: map[string]bool{}, said: map[string]report{}, groups: map[netip.Addr]group{}, hosts: newRefusals(c.Reports),
	}
}

// step is what becomes of a VIP.
type step struct {
	vip   netip.Addr
	next  placementpolicy.State
	tells []eventlog.Event
}

// Step looks at what hosts and switches say, and takes the steps that are due, as of now.
func (w *Watch) Step(ctx context.Context, s *store.State, now time.Time) error {
	begin := time.Now()
	vips := w.lookAt(s, now)
	w.took = time.Since(begin)
	var writes errgroup.Group
	for some := range slices.Chunk(vips, etcd.SafeOperations) {
		writes.Go(func() error { return w.write(ctx, some, now) })
	}
	return writes.Wait()
}

// write takes the steps of some VIPs. Writes at once become one transaction where etcd takes it; what each decides, the
// store's writer asks one after the other.
func (w *Watch) write(ctx context.Context, vips []netip.Addr, now time.Time) error {
	var done []step
	_, err := w.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
		change := store.Change{Placements: map[netip.Addr]placementpolicy.State{}}
		done = nil
		for _, vip := range vips {
			if d, changed := w.next(s, vip, now); changed {
				done = append(done, d)
				change.Placements[vip] = d.next
			}
		}
		return change, nil
	})
	if err != nil {
		return err
	}
	for _, d := range done {
		for _, e := range d.tells {
			w.Events.Record(e)
			w.Log.Info(e.Message, "vip", e.Object, "reason", e.Reason)
		}
	}
	return nil
}

// noteSilence notes whether a switch has a stream, and tells people of one that holds VIPs and has had none for a while.
func (w *Watch) noteSilence(s *store.State, name string, now time.Time) {
	since, silent := w.silent[name]
	switch {
	case s.Streams.At(name):
		if silent {
			lookAtAllOf(w, s, name)
		}
		delete(w.silent, name)
		delete(w.told, name)
	case !silent:
		w.silent[name] = now
		lookAtAllOf(w, s, name)
	case now.Sub(since) >= placementpolicy.SilentTime && !w.told[name]:
		w.told[name] = true
		holds := 0
		for range s.Placements.VIPsOf(name) {
			holds++
		}
		if holds > 0 {
			w.Events.Record(eventlog.Event{
				Kind: string(model.RoleSwitch), Object: name, Warning: true, Reason: reason.SwitchSilent,
				Message: fmt.Sprintf("has had no stream for %s: it keeps the VIPs that it holds, %d, and gets no other one", placementpolicy.SilentTime, holds),
			})
		}
	}
}

// read reads the newest report of a switch, to this manager or another one.
func (w *Watch) read(s *store.State, name string) report {
	stored := s.Status.At(name)
	status, detail, here := w.Latest(name, stored)
	switch before := w.said[name]; {
	case here && detail != nil && before.detail == detail && before.generation == status.Generation:
		return before
	case !here && !stored.Seen.IsZero() && before.stored.Equal(stored.Seen):
		return before
	}
	if !here {
		status, detail = stored, &weirv1.NodeStatus{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(stored.Detail, detail); err != nil && len(stored.Detail) > 0 {
			w.Log.Warn("can't read the status of a switch", "node", name, "err", err)
		}
	}
	said := report{
		generation: status.Generation, refused: map[string]string{}, more: detail.GetSwitch().GetRefusedMore(), tables: detail.GetSwitch(),
		unrouted: map[string]bool{}, moreAre: detail.GetSwitch().GetUnroutedMore(),
	}
	if here {
		said.detail = detail
	} else {
		said.stored = stored.Seen
	}
	for _, r := range detail.GetSwitch().GetRefused() {
		said.refused[r.GetVip()] = refusalText(r)
		lookAtEntry(w, s, r.GetVip())
	}
	for _, address := range detail.GetSwitch().GetUnrouted() {
		if said.unrouted[address] = true; !w.said[name].unrouted[address] {
			lookAtEntry(w, s, address)
		}
	}
	for address := range w.said[name].unrouted {
		if !said.unrouted[address] {
			lookAtEntry(w, s, address)
		}
	}
	return said
}

// lookAtEntry adds the VIP of which a switch has an entry, by the entry's address.
func lookAtEntry(w *Watch, s *store.State, address string) {
	vip, err := netip.ParseAddr(address)
	for u := range s.Addresses.Of(vip, desired.AsTIP) {
		vip = s.VIPs.At(u.Name).Address
	}
	if err == nil && s.Placements.Has(vip) {
		w.look[vip] = true
	}
}

// refusalText is why a switch refused an entry.
func refusalText(r *weirv1.SwitchRefusal) string {
	if r.GetTable() != "" {
		return events.CutMessage(fmt.Sprintf("table %s has room for %d rows, %d are needed", r.GetTable(), r.GetFree(), r.GetNeed()))
	}
	return cmp.Or(events.CutMessage(r.GetReason()), "it does not say why")
}

// next is what becomes of a VIP, if anything does.
func (w *Watch) next(s *store.State, address netip.Addr, now time.Time) (step, bool) {
	before := s.Placements.At(address)
	vip, there := s.VIPAt(address)
	d := step{vip: address, next: placementpolicy.State{VIP: before.VIP, Tenant: before.Tenant, Places: map[string]placementpolicy.Place{}, Flood: before.Flood}}
	if there {
		d.next.VIP, d.next.Tenant = vip.Name, vip.Tenant
	}
	names := s.SwitchesAt(address)
	if there && vip.ChosenSwitches() {
		d.next.Chosen, d.next.Split, d.next.Unplaced, d.next.KbitPerS = before.Chosen, before.Split, before.Unplaced, before.KbitPerS
		names = append(names, before.Chosen...)
		slices.Sort(names)
		names = slices.Compact(names)
	}
	stay := map[string]bool{}
	take := func(name string) {
		was := before.Places[name]
		seen := w.see(s, vip, address, name, was, now)
		stay[name] = seen.Wanted && seen.Unfit == "" && seen.Silent < placementpolicy.GoneTime
		if !behindTIP(vip, name, was) && seen.Unfit == "" {
			seen.Unfit = w.unfitEntry(s, vip, name, before, d.next, stay)
		}
		is, event := was.Next(seen, now)
		stay[name] = stay[name] && !is.Refuses()
		if is.Phase == placementpolicy.Preparing && was.Phase != is.Phase {
			is.TIP = hardware.TIPAt(vip, name)
		}
		if is.Phase != "" {
			d.next.Places[name] = is
		}
		if text, tells := texts[event]; tells {
			e := eventlog.Event{Kind: events.KindVIP, Object: d.next.VIP, Tenant: d.next.Tenant, Warning: text.warning, Reason: text.reason}
			if e.Message = fmt.Sprintf(text.text, name); is.Reason != "" {
				e.Message += ": " + is.Reason
			}
			d.tells = append(d.tells, e)
		}
	}
	first, behind := split(names, func(name string) bool { return behindTIP(vip, name, before.Places[name]) })
	for _, name := range behind {
		take(name)
	}
	w.name(s, vip, address, d.next, stay, now)
	for _, name := range first { // they go by which TIPs there are
		take(name)
	}
	if there && (vip.InHardware() || vip.ChosenSwitches()) {
		w.share(s, vip, d.next, now)
	}
	before.VIP, before.Tenant = d.next.VIP, d.next.Tenant // names alone are no change
	return d, !before.Equal(d.next)
}

// share gives the switches of a VIP their parts of its members: those that it names, or those behind its TIPs.
func (w *Watch) share(s *store.State, vip model.VIP, next placementpolicy.State, now time.Time) {
	among, parts := vip.Hardware.Switches, vip.Hardware.Split
	if vip.ChosenSwitches() { // one that is left keeps its part until it is
		among, parts = next.Chosen, next.Split
	}
	if tips := vip.Hardware.TIPs; len(tips) > 0 {
		next.Whole(among)
		among, parts = nil, true
		for _, t := range tips {
			among = append(among, t.Switch)
		}
	}
	if !parts {
		next.Whole(among)
		return
	}
	silent := func(name string) bool {
		return w.silentFor(s, name, now) >= placementpolicy.SilentTime || next.Places[name].Silent || next.Places[name].Unrouted
	}
	next.Share(among, silent, func(name string, part placementpolicy.Part) bool {
		said, g, place := w.said[name].tables, w.groupOf(s, vip), next.Places[name]
		size, held := g.SizeOf(part, said.GetMembers(), true), uint32(0)
		if place.Phase.Held() {
			held = g.SizeOf(place.Part, said.GetMembers(), true).Members
		}
		ecmp, tunnels := said.GetEcmp(), said.GetTunnels()
		return size.Entries <= said.GetMembers() && ecmp.GetUsed()+size.Entries <= ecmp.GetSize() &&
			tunnels.GetUsed()+size.Members <= tunnels.GetSize()+held
	})
}

// texts are the events of steps.
var texts = map[placementpolicy.Event]struct {
	warning      bool
	reason, text string
}{
	placementpolicy.Placed:    {false, reason.HardwarePlaced, "switch %s serves it"},
	placementpolicy.Withdrawn: {false, reason.HardwareWithdrawn, "switch %s serves it no more"},
	placementpolicy.Refused:   {true, reason.HardwareRefused, "switch %s does not take its entry"},
	placementpolicy.Unsteered: {true, reason.HardwareRefused, "switch %s does not serve it"},
	placementpolicy.Unrouted:  {true, reason.HardwareWithdrawn, "switch %s has withdrawn it: it has no route to its tunnels"},
}

// see is what there is to see of a VIP and a switch.
func (w *Watch) see(s *store.State, vip model.VIP, address netip.Addr, name string, was placementpolicy.Place, now time.Time) placementpolicy.Seen {
	node, t := s.Nodes.At(name), w.timers[address][name]
	seen := placementpolicy.Seen{
		Wanted: hardware.AsksFor(vip, name) && asItIs(vip, name, was) || vip.ChosenSwitches() && s.Placements.At(address).Wants(name),
		Silent: w.silentFor(s, name, now),
	}
	switch {
	case seen.Wanted && s.Placements.At(address).Flood.Withdrawn:
		seen.Wanted, seen.Unfit = false, "the VIP is flooded"
	case hardware.AsksFor(vip, name) && !node.Drained.IsZero(): // of placement auto others are chosen, and serve first
		seen.Wanted, seen.Unfit = false, "the switch is drained"
	case seen.Wanted:
		seen.Unfit = w.unfit(s, vip, node)
	}
	if seen.Named = was.TIP.IsValid(); t.phase != was.Phase { // it was written since: nothing is known of it
		return seen
	}
	seen.Named = was.TIP.IsValid() && w.isNamed(s, address, was, now)
	seen.HostsReady = w.ready >= s.PlacementWritten.At(address) && (was.TIP.IsValid() || w.tipsTakeSenders(s, address))
	seen.For = now.Sub(t.since)
	if seen.Runs = !t.runs.IsZero(); seen.Runs {
		seen.RunsFor = now.Sub(t.runs)
		seen.Refused = w.said[name].refused[was.Address(address).String()]
		if seen.Unrouted = w.said[name].unrouted[was.Address(address).String()]; !t.routed.IsZero() {
			seen.RoutedFor = now.Sub(t.routed)
		}
	}
	if seen.Wanted {
		seen.Host, seen.HostSays = w.unsteered(s, vip, was, now)
	}
	return seen
}

// silentFor is for how long a switch has had no stream, as this leader knows.
func (w *Watch) silentFor(s *store.State, name string, now time.Time) time.Duration {
	since, silent := w.silent[name]
	switch {
	case s.Streams.At(name):
		return 0
	case !silent: // not registered, or just gone
		return placementpolicy.SilentTime
	}
	return max(now.Sub(since), 0)
}
