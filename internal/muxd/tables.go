package muxd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/wire"
)

// HopState is the state of next hops, by destination.
type HopState = netlink.State

// rejection is a generation that was refused, and why.
type rejection struct {
	generation model.Generation
	reason     string
}

// tables keeps the data plane at the manager's updates, and announces the VIPs that it forwards.
type tables struct {
	config       Config
	log          *slog.Logger
	destinations func([]netip.Addr) // sets the destinations of next hops

	mu         sync.Mutex
	generation model.Generation // that runs
	ahead      model.Generation // that runs except for pending prefix lists, or generation
	waits      waiting
	piece      int           // prefixes of a list in one write
	fill       chan struct{} // holds at most one: lists are pending
	rejected   *rejection    // the last, unless something was applied since
	settings   mux.Settings
	live       *live
	leaving    map[netip.Addr]bool // VIPs that are withdrawn but still live
	announced  map[netip.Addr]bool // VIPs
	tunnels    []netip.Addr        // of the backends
	others     []netip.Addr        // of the other muxes of the pool
	sought     []netip.Addr        // destinations of next hops: tunnels, and the other muxes
	hops       HopState
	settled    bool // every next hop was resolved or failed once
	filled     bool // by a snapshot of this process's stream
	tookOver   bool // the filled tables are those that forward
	stopped    bool // nothing is announced any more
	excluded   bool // out of the pool: nothing is announced until the manager says otherwise
	warnings   []string
	overrides  routeOverrides // VIPs that are not announced as usual
}

// newTables adopts the live tables of the data plane.
func newTables(config Config) (*tables, error) {
	t := &tables{
		config: config, log: config.Log, destinations: func([]netip.Addr) {},
		announced: map[netip.Addr]bool{}, fill: make(chan struct{}, 1), piece: listPiece,
	}
	keys, err := config.Datapath.Endpoints()
	if err != nil {
		return nil, err
	}
	vips, err := config.Datapath.VIPs()
	if err != nil {
		return nil, err
	}
	t.live = newLive(keys, vips)
	t.overrides = loadRouteOverrides(config.RoutesFile, config.Log)
	if t.generation, err = config.Datapath.Generation(); err != nil {
		return nil, err
	}
	t.ahead = t.generation
	if t.settings, err = config.Datapath.Settings(); err != nil {
		return nil, err
	}
	settings := t.settings
	settings.Source4, settings.Source6, settings.MTU, settings.MAC = config.Source4, config.Source6, config.MTU, config.MAC
	settings.Prefix4, settings.Prefix6, settings.Encapsulation = config.Prefix4, config.Prefix6, config.Encapsulation
	return t, t.setSettings(settings)
}

func (t *tables) setSettings(settings mux.Settings) error {
	if settings == t.settings {
		return nil
	}
	if err := t.config.Datapath.SetSettings(settings); err != nil {
		return err
	}
	t.settings = settings
	return nil
}

// mac is the interface's address: the program ignores frames to others.
func (t *tables) mac() [6]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settings.MAC
}

// announceLive announces the VIPs of adopted tables at once: they were announced before the restart, and are forwarded.
func (t *tables) announceLive() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for vip := range t.live.vips() {
		t.announced[vip] = true
	}
	if len(t.announced) > 0 {
		t.log.Info("took over live tables", "generation", t.generation, "endpoints", t.live.endpoints, "vips", len(t.announced))
	}
	t.announce()
	return nil
}

// apply applies an update to the data plane. After an error, a rejection, the stream must begin with a snapshot.
func (t *tables) apply(ctx context.Context, update wire.MuxUpdate) error {
	t.setExcluded(update.Withdraw)
	t.setRouteOverrides(update.Routes)
	if t.withdraw(update) {
		wait(ctx, t.config.Lead)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now, waits := t.waits.take(update, t.config.Datapath, t.piece)
	changed, err := t.program(now)
	changed = changed || len(t.leaving) > 0 || len(t.warnings) > 0
	t.leaving = nil
	if err == nil {
		t.ahead, t.waits, t.rejected = update.Generation, waits, nil
		err = t.runs()
	}
	if err != nil {
		t.refuse(update.Generation, err)
		t.announce() // what was leaving stays
		return err
	}
	if err := t.config.Datapath.SetPoolMembers(t.config.Name, update.Pool); err != nil {
		t.log.Error("set the muxes of the pool", "err", err)
	}
	if err := t.config.Datapath.SetMuxes(len(update.Pool)); err != nil {
		t.log.Error("divide the limits of VIPs among the muxes", "err", err)
	}
	t.others = others(t.config.Name, update.Pool)
	t.filled = true
	t.programmed(changed)
	t.log.DebugContext(ctx, "tables applied", "generation", update.Generation, "endpoints", t.live.endpoints)
	return nil
}

// runs marks the applied generation as running, unless lists of it are pending.
func (t *tables) runs() error {
	if t.waits.any() {
		wake(t.fill)
		return nil
	}
	if err := t.config.Datapath.SetGeneration(t.ahead); err != nil {
		return err
	}
	t.generation = t.ahead
	return nil
}

// programmed updates destinations and routes after a change of the data plane. changed: the set of VIPs has changed.
func (t *tables) programmed(changed bool) {
	if tunnels := t.config.Datapath.Tunnels(); !slices.Equal(tunnels, t.tunnels) {
		changed, t.tunnels = true, tunnels
	}
	if all := slices.Concat(t.tunnels, t.others); !slices.Equal(all, t.sought) {
		t.sought = all
		t.destinations(all)
	}
	t.takeOver()
	if changed { // most updates change neither the VIPs nor the hosts
		t.announce()
	}
}

// setExcluded withdraws all routes, or announces them again. Packets that still arrive are forwarded.
func (t *tables) setExcluded(out bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.excluded == out {
		return
	}
	t.excluded = out
	t.announce()
}

// others are the addresses of the other muxes of the pool, in order.
func others(self string, pool []model.PoolMember) []netip.Addr {
	var all []netip.Addr
	for _, member := range pool {
		if member.Name != self {
			all = append(all, member.Addresses...)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// withdraw withdraws the routes of VIPs that the update removes, and says whether there were any.
func (t *tables) withdraw(update wire.MuxUpdate) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaving = t.live.leaving(update)
	maps.DeleteFunc(t.leaving, func(vip netip.Addr, _ bool) bool { return !t.announced[vip] })
	if len(t.leaving) == 0 {
		return false
	}
	t.announce()
	return true
}

// program writes the update to the data plane, and says whether the set of VIPs has changed.
func (t *tables) program(update wire.MuxUpdate) (bool, error) {
	if update.Snapshot {
		settings := t.settings
		settings.HashKey = update.HashKey
		if err := t.setSettings(settings); err != nil {
			return false, err
		}
	}
	err := t.config.Datapath.Update(mux.Update{
		Snapshot: update.Snapshot, Endpoints: update.Endpoints, Removed: update.Removed,
		SNAT: update.SNAT, SNATRemoved: update.SNATRemoved, KeepSNAT: update.KeepSNAT, Lists: update.Lists, ListsRemoved: update.ListsRemoved,
	})
	if err != nil {
		return false, err
	}
	return t.live.apply(update), nil
}

// reject records a generation that could not be decoded.
func (t *tables) reject(generation model.Generation, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refuse(generation, err)
}

func (t *tables) refuse(generation model.Generation, err error) {
	if t.rejected == nil || t.rejected.generation != generation {
		t.log.Error("refused tables, going on with those that run",
			"refused", generation, "generation", t.generation, "err", err)
	}
	t.rejected = &rejection{generation: generation, reason: err.Error()}
}

// hopsChanged applies new next hops. Until each was resolved or failed once, those of adopted tables stay, as they forwarded
// before the restart.
func (t *tables) hopsChanged(state HopState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hops = state
	t.settled = t.settled || t.nextHopsResolved()
	if !t.settled {
		return
	}
	if err := t.config.Datapath.SetNextHops(state.NextHops); err != nil {
		t.log.Error("set next hops", "err", err)
	}
	if settings := t.settings; state.MTU > 0 {
		settings.MTU, settings.MAC = state.MTU, state.MAC
		if err := t.setSettings(settings); err != nil {
			t.log.Error("set the interface's mtu and mac", "err", err)
		}
	}
	t.takeOver()
	t.announce()
}

// takeOver has newly filled tables replace those of another layout, once their next hops are resolved.
func (t *tables) takeOver() {
	if t.tookOver || !t.filled || !t.settled || !t.nextHopsResolved() || t.hasNoReachableBackend() {
		return
	}
	if err := t.config.Datapath.TakeOver(); err != nil {
		t.log.Error("take over from the tables of another layout", "err", err)
		return
	}
	t.tookOver = true
}

// nextHopsResolved says whether every destination has a next hop or a reason to have none.
func (t *tables) nextHopsResolved() bool {
	for _, tunnel := range t.config.Datapath.Tunnels() {
		if !t.hops.NextHops[tunnel].Resolved() && t.hops.Problems[tunnel] == "" {
			return false
		}
	}
	return true
}

// hasNoReachableBackend says whether the next hops of all destinations have failed: a mux without a way to the hosts, but
// with one to the router, would attract traffic and drop it.
func (t *tables) hasNoReachableBackend() bool {
	tunnels := t.config.Datapath.Tunnels()
	reached := slices.ContainsFunc(tunnels, func(a netip.Addr) bool { return t.hops.NextHops[a].Resolved() })
	return len(tunnels) > 0 && !reached && t.settled && t.nextHopsResolved()
}

// announce announces the VIPs whose backends are reachable. A VIP that was announced stays so while it is live and the
// mux reaches any host at all.
func (t *tables) announce() {
	if t.stopped {
		return
	}
	tried := t.settled && t.nextHopsResolved()
	vips := t.live.vips()
	maps.DeleteFunc(vips, func(vip netip.Addr, _ bool) bool {
		return t.leaving[vip] || !t.announced[vip] && !tried
	})
	t.announced = vips
	prefixes, warnings := t.config.Routes.prefixes(slices.SortedFunc(maps.Keys(vips), netip.Addr.Compare))
	if err := t.config.Discard(prefixes); err != nil {
		warnings = append(warnings, err.Error())
	}
	routes, more := t.overrides.routes(t.config.Routes, vips)
	warnings = append(warnings, more...)
	if t.hasNoReachableBackend() {
		routes = nil
		warnings = append(warnings, "no host can be reached: no VIP is announced until one can")
	}
	if t.excluded {
		routes = nil
		warnings = append(warnings, "out of the pool, as this mux did not answer the manager in time: no VIP is announced until it is current")
	}
	if err := t.config.Speaker.Announce(routes); err != nil {
		warnings = append(warnings, reasons(err)...)
	}
	t.warnings = warnings
}

// withdrawAll withdraws all routes for the rest of the process.
func (t *tables) withdrawAll() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	return t.config.Speaker.Announce(nil)
}

// maxWarnings bounds the lines of one kind of warning.
const maxWarnings = 20

// allWarnings are the warnings for operators, one line each.
func (t *tables) allWarnings() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lines []string
	if t.hops.Link != "" {
		lines = append(lines, t.hops.Link)
	}
	if t.config.Datapath.Mode() == string(mux.Generic) {
		lines = append(lines, fmt.Sprintf("XDP on %s is generic: expect a fraction of the speed of a driver's own", t.config.Interface))
	}
	var problems []string
	for _, addr := range slices.SortedFunc(maps.Keys(t.hops.Problems), netip.Addr.Compare) {
		problems = append(problems, t.hops.Problems[addr])
	}
	lines = append(lines, bounded(problems)...)
	return append(lines, bounded(t.warnings)...)
}

func bounded(lines []string) []string {
	if len(lines) <= maxWarnings {
		return lines
	}
	return append(slices.Clone(lines[:maxWarnings]), fmt.Sprintf("and %d more like these", len(lines)-maxWarnings))
}

// reasons are the errors that err joins, one line each.
func reasons(err error) []string {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []string{err.Error()}
	}
	var lines []string
	for _, e := range joined.Unwrap() {
		lines = append(lines, e.Error())
	}
	return lines
}

// current is the generation that runs, the one that runs except for pending lists, and the last rejection.
func (t *tables) current() (generation, ahead model.Generation, rejected *rejection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.generation, t.ahead, t.rejected
}

// joins says whether this process has not applied a snapshot yet.
func (t *tables) joins() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.filled
}

// snat is the state of source NAT in the tables, at their generation.
func (t *tables) snat() *weirv1.MuxSNATStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	ranges, digest := t.config.Datapath.SNATDigest()
	return &weirv1.MuxSNATStatus{Generation: uint64(t.ahead), Ranges: uint64(ranges), Digest: digest}
}
