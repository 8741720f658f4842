// Package forwarding is the forwarding state of a mux: it applies the manager's updates to the data plane, sets the
// next hops to the hosts, and has the VIPs announced that are forwarded.
//
// Invariants:
//   - the routes of a VIP are withdrawn before its endpoints are removed;
//   - an update that is refused changes nothing;
//   - the next hops of adopted tables stay until each was resolved or failed once.
package forwarding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/muxd/announce"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/wake"
	"github.com/weirlb/weir/internal/wire"
)

// Datapath is what forwards.
type Datapath interface {
	Settings() (pool.Settings, error)
	SetSettings(pool.Settings) error
	Generation() (model.Generation, error)
	SetGeneration(model.Generation) error
	Update(endpoint.Update) error
	// PrefixList is what the tables have of a prefix list, FreeSourceRows how many prefixes there is room for beside all.
	PrefixList(name string) model.PrefixSet
	FreeSourceRows() int
	Endpoints() ([]model.EndpointKey, error)
	VIPs() ([]netip.Addr, error) // those without endpoints too
	Tunnels() []netip.Addr
	SetNextHops(map[netip.Addr]model.NextHop) error
	SetPoolMembers(self string, pool []model.PoolMember) error
	SetMuxes(n int) error // that limits of VIPs are divided among
	SNATDigest() (ranges int, digest uint64)
	Overlay
	NAT
	// TakeOver lets the tables take the place of those of another layout that forward until then, if
	// there are any.
	TakeOver() error
}

// Config configures a State.
type Config struct {
	Name     string        // of the mux
	Settings pool.Settings // but for the hash key, which a snapshot brings
	Lead     time.Duration // between the withdrawal of a VIP and the end of its endpoints
	// NATPrefixes are those of full NAT, one of each family at most; none: the mux does none.
	NATPrefixes []netip.Prefix
	Datapath    Datapath
	Routes      *announce.Announcer
	Log         *slog.Logger
}

// State keeps the data plane at the manager's updates, and announces the VIPs that it forwards.
type State struct {
	config       Config
	log          *slog.Logger
	destinations func([]netip.Addr) // sets the destinations of next hops
	mac          atomic.Value       // settings.MAC: who has a lease to renew can't wait for a write of tables

	mu          sync.Mutex
	generations generations
	pending     pending
	piece       int         // prefixes of a list in one write
	fill        wake.Signal // lists are pending
	settings    pool.Settings
	live        *live
	networks    networks
	swept       natSweep
	leaving     map[netip.Addr]bool // VIPs that are withdrawn but still live
	tunnels     []netip.Addr        // of the backends
	others      []netip.Addr        // of the other muxes of the pool
	sought      []netip.Addr        // destinations of next hops: tunnels, and the other muxes
	hops        nextHops
	filled      bool // by a snapshot of this process's stream
	tookOver    bool // the filled tables are those that forward
}

// New adopts the live tables of the data plane.
func New(config Config) (*State, error) {
	s := &State{config: config, log: config.Log, fill: wake.New(), piece: listPiece}
	keys, err := config.Datapath.Endpoints()
	if err != nil {
		return nil, err
	}
	vips, err := config.Datapath.VIPs()
	if err != nil {
		return nil, err
	}
	s.live = newLive(keys, vips)
	full, err := newFullNAT(config.Datapath, config.NATPrefixes)
	if err != nil {
		return nil, err
	}
	if s.networks, err = newNetworks(config.Datapath, full); err != nil {
		return nil, err
	}
	generation, err := config.Datapath.Generation()
	if err != nil {
		return nil, err
	}
	s.generations = generations{runs: generation, ahead: generation}
	if s.settings, err = config.Datapath.Settings(); err != nil {
		return nil, err
	}
	settings := config.Settings
	settings.HashKey = s.settings.HashKey
	// Written in any case: of the same settings this release may derive others than the one before.
	if err := config.Datapath.SetSettings(settings); err != nil {
		return nil, err
	}
	s.settings = settings
	s.mac.Store(settings.MAC)
	return s, nil
}

// Start sets the destinations of next hops, and announces the VIPs of adopted tables at once: they were announced
// before the restart, and are forwarded.
func (s *State) Start(destinations func([]netip.Addr)) {
	s.destinations = destinations
	destinations(s.config.Datapath.Tunnels())
	s.mu.Lock()
	defer s.mu.Unlock()
	vips := s.live.vips()
	if len(vips) > 0 {
		s.log.Info("took over live tables",
			"generation", s.generations.runs, "endpoints", s.live.endpoints, "vips", len(vips))
	}
	s.config.Routes.Adopt(vips, s.networks.wanted.addresses())
}

func (s *State) setSettings(settings pool.Settings) error {
	if settings == s.settings {
		return nil
	}
	if err := s.config.Datapath.SetSettings(settings); err != nil {
		return err
	}
	s.settings = settings
	s.mac.Store(settings.MAC)
	return nil
}

// Apply applies an update to the data plane. After an error, a rejection, the stream must begin with a snapshot.
func (s *State) Apply(ctx context.Context, update wire.MuxUpdate) error {
	s.config.Routes.SetExcluded(update.Withdraw)
	s.config.Routes.SetOverrides(update.Routes)
	if s.withdraw(update) {
		wake.After(ctx, s.config.Lead)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, later := s.pending.split(update, s.config.Datapath, s.piece)
	changed, err := s.programAll(now, s.networks.wanted.next(update))
	changed = changed || len(s.leaving) > 0 || len(s.config.Routes.Warnings()) > 0
	s.leaving = nil
	if err == nil {
		s.generations.ahead, s.pending, s.generations.rejected = update.Generation, later, nil
		err = s.finish()
	}
	if err != nil {
		s.generations.reject(update.Generation, err, s.log)
		s.announce() // what was leaving stays
		return err
	}
	if err := s.config.Datapath.SetPoolMembers(s.config.Name, update.Pool); err != nil {
		s.log.Error("set the muxes of the pool", "err", err)
	}
	if err := s.config.Datapath.SetMuxes(len(update.Pool)); err != nil {
		s.log.Error("divide the limits of VIPs among the muxes", "err", err)
	}
	s.others = others(s.config.Name, update.Pool)
	s.filled = true
	s.programmed(changed)
	s.log.DebugContext(ctx, "tables applied", "generation", update.Generation, "endpoints", s.live.endpoints)
	return nil
}

// programAll writes an update to the data plane: virtual networks around the endpoints that they lead to.
func (s *State) programAll(update wire.MuxUpdate, next networkSet) (changed bool, err error) {
	if err := s.networks.prepare(next); err != nil {
		return false, err
	}
	if changed, err = s.program(update); err != nil {
		return false, errors.Join(err, s.networks.complete(s.networks.wanted))
	}
	return changed, s.networks.complete(next)
}

// finish marks the applied generation as running, unless lists of it are pending.
func (s *State) finish() error {
	if s.pending.any() {
		s.fill.Set()
		return nil
	}
	if err := s.config.Datapath.SetGeneration(s.generations.ahead); err != nil {
		return err
	}
	s.generations.runs = s.generations.ahead
	return nil
}

// programmed updates destinations and routes after a change of the data plane. changed: the set of VIPs has changed.
func (s *State) programmed(changed bool) {
	if tunnels := s.config.Datapath.Tunnels(); !slices.Equal(tunnels, s.tunnels) {
		changed, s.tunnels = true, tunnels
	}
	if all := slices.Concat(s.tunnels, s.others); !slices.Equal(all, s.sought) {
		s.sought = all
		s.destinations(all)
	}
	s.takeOver()
	if changed { // most updates change neither the VIPs nor the hosts
		s.announce()
	}
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
func (s *State) withdraw(update wire.MuxUpdate) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = s.config.Routes.Announced(s.live.leaving(update))
	leaves := s.config.Routes.WithdrawOverlay(s.networks.wanted.next(update).routes())
	if len(s.leaving) == 0 {
		return leaves
	}
	s.announce()
	return true
}

// announce announces the live VIPs that do not leave.
func (s *State) announce() {
	vips := s.live.vips()
	maps.DeleteFunc(vips, func(vip netip.Addr, _ bool) bool { return s.leaving[vip] })
	s.config.Routes.Set(vips, s.networks.wanted.routes(), s.reach())
}

// program writes the update to the data plane, and says whether the set of VIPs has changed.
func (s *State) program(update wire.MuxUpdate) (bool, error) {
	if update.Snapshot {
		settings := s.settings
		settings.HashKey = update.HashKey
		if err := s.setSettings(settings); err != nil {
			return false, err
		}
	}
	err := s.config.Datapath.Update(endpoint.Update{
		Snapshot: update.Snapshot, Endpoints: update.Endpoints, Removed: update.Removed,
		SNAT: update.SNAT, SNATRemoved: update.SNATRemoved, KeepSNAT: update.KeepSNAT,
		Lists: update.Lists, ListsRemoved: update.ListsRemoved,
	})
	if err != nil {
		return false, err
	}
	return s.live.apply(update), nil
}

// Reject records a generation that could not be decoded.
func (s *State) Reject(generation model.Generation, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generations.reject(generation, err, s.log)
}

// SetNextHops applies new next hops. Until each was resolved or failed once, those of adopted tables stay, as they
// forwarded before the restart.
func (s *State) SetNextHops(hops netlink.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hops.set(hops, s.config.Datapath.Tunnels()) {
		return
	}
	if err := s.config.Datapath.SetNextHops(hops.NextHops); err != nil {
		s.log.Error("set next hops", "err", err)
	}
	if settings := s.settings; hops.MTU > 0 {
		settings.MTU, settings.MAC = hops.MTU, hops.MAC
		if err := s.setSettings(settings); err != nil {
			s.log.Error("set the interface's mtu and mac", "err", err)
		}
	}
	s.takeOver()
	s.announce()
}

// reach is what is known of the next hops to the hosts.
func (s *State) reach() announce.Reach { return s.hops.reach(s.config.Datapath.Tunnels()) }

// takeOver has newly filled tables replace those of another layout, once their next hops are resolved.
func (s *State) takeOver() {
	if reach := s.reach(); s.tookOver || !s.filled || !reach.Tried || reach.None {
		return
	}
	if err := s.config.Datapath.TakeOver(); err != nil {
		s.log.Error("take over from the tables of another layout", "err", err)
		return
	}
	s.tookOver = true
}

// maxWarnings bounds the lines of one kind of warning.
const maxWarnings = 20

// Warnings are for operators, one line each.
func (s *State) Warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines, problems := s.hops.warnings()
	lines = append(lines, bounded(problems)...)
	lines = append(lines, s.networks.full.warnings(s.networks.wanted)...)
	return append(lines, bounded(s.config.Routes.Warnings())...)
}

func bounded(lines []string) []string {
	if len(lines) <= maxWarnings {
		return lines
	}
	return append(slices.Clone(lines[:maxWarnings]), fmt.Sprintf("and %d more like these", len(lines)-maxWarnings))
}

// Generations are the one that runs, the one that runs except for pending lists, and the last that was rejected; nil:
// none was since.
func (s *State) Generations() (runs, ahead model.Generation, rejected *Rejection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generations.runs, s.generations.ahead, s.generations.rejected
}

// Running is the generation that runs, and the interface's address: the program ignores frames to others.
func (s *State) Running() (generation model.Generation, mac [6]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generations.runs, s.settings.MAC
}

// MAC is the interface's address, as Running tells it, also during an update.
func (s *State) MAC() [6]byte { return s.mac.Load().([6]byte) }

// Joins says whether this process has not applied a snapshot yet.
func (s *State) Joins() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.filled
}

// SNAT is the state of source NAT in the tables, at their generation.
func (s *State) SNAT() *weirv1.MuxSNATStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	ranges, digest := s.config.Datapath.SNATDigest()
	return &weirv1.MuxSNATStatus{Generation: uint64(s.generations.ahead), Ranges: uint64(ranges), Digest: digest}
}
