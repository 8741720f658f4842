package muxd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/sync/errgroup"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/boottime"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/muxd/announce"
	"github.com/weirlb/weir/internal/muxd/fairdrop"
	"github.com/weirlb/weir/internal/muxd/forwarding"
	"github.com/weirlb/weir/internal/muxd/neighbor"
	"github.com/weirlb/weir/internal/muxd/redirect"
	"github.com/weirlb/weir/internal/muxd/synflood"
	"github.com/weirlb/weir/internal/muxd/task"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/overload"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/segment"
	"github.com/weirlb/weir/internal/slowpath"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/wake"
	"github.com/weirlb/weir/internal/wire"
)

// Datapath is the data plane.
type Datapath interface {
	fairdrop.Datapath
	forwarding.Datapath
	neighbor.Datapath
	synflood.Datapath
	task.Datapath

	Mode() string
	RefusedCounters() (map[netip.Addr]model.Counter, error)
	SweepFlows() (freed int, err error)
	LostDatagrams() (map[string]uint64, error)
	EndpointCounters() (map[model.EndpointKey]model.Counter, error)
	SNATCounters() (map[netip.Addr]model.Counter, error)
	Usage() (mux.Usage, error)
	TenantUsage() ([]flow.TenantUsage, error)
	Close() error  // leaves it forwarding
	Unload() error // ends forwarding
}

// Speaker announces routes.
type Speaker interface {
	announce.Speaker
	Peers() []bgp.PeerState
	Run(ctx context.Context) error // ends by closing the sessions
	HandOver()                     // makes that end leave the routes with the peers
}

// NextHops follows the next hops to a set of destinations.
type NextHops interface {
	SetDestinations([]netip.Addr)
	Run(ctx context.Context) error
}

// Manager is the manager's API for muxes.
type Manager interface {
	SyncMux(ctx context.Context, request *weirv1.SyncMuxRequest) (
		*connect.ServerStreamForClient[weirv1.SyncMuxResponse], error)
	ReportMux(ctx context.Context, request *weirv1.ReportMuxRequest) (*weirv1.ReportMuxResponse, error)
	AcknowledgeMux(ctx context.Context) (*rpc.Acknowledgements, error)
	AnswerTask(ctx context.Context, request *weirv1.AnswerTaskRequest) (*weirv1.AnswerTaskResponse, error)
}

// Leases are granted by managers.
type Leases interface {
	RenewNeighbors(ctx context.Context, request *weirv1.RenewNeighborsRequest) (*weirv1.RenewNeighborsResponse, error)
	Leave() // has the next request go to another manager
}

// Config configures a Mux.
type Config struct {
	Name      string // of the node; a DNS label
	Version   string
	Interface string
	// Settings are of the data plane, but for the hash key. Their MTU and MAC are the interface's, until NextHops tells
	// others.
	Settings   pool.Settings
	Aggregates []netip.Prefix // announced instead of routes to single VIPs
	// NATPrefixes are those of full NAT, which this mux alone announces: one of each family at most.
	NATPrefixes []netip.Prefix
	// NeighborPrefixes are those of VIPs that the mux can answer ARP and NDP for, on Segment, by leases of Leases; none: it
	// answers for none.
	NeighborPrefixes []netip.Prefix
	Segment          neighbor.Segment
	Leases           Leases
	RoutesFile       string        // keeps the route overrides over restarts; empty: they are not kept
	DrainTime        time.Duration // between the withdrawal of the routes and the end of forwarding
	Lead             time.Duration // between the withdrawal of a VIP and the end of its endpoints
	// GracefulRestart is how long routers keep the routes of a mux whose daemon ended; 0: not at all.
	GracefulRestart time.Duration
	Datapath        Datapath // owned by the Mux
	Speaker         Speaker
	NextHops        func(changed func(netlink.State)) (NextHops, error)
	// Discard makes the announced prefixes all whose packets the kernel drops, if they get to it.
	Discard func([]netip.Prefix) error
	// KeepDiscarding has them stay so until ctx ends; nil: nobody looks.
	KeepDiscarding func(context.Context) error
	// SlowPath handles packets that the fast path can't, until ctx ends; nil: they are dropped.
	SlowPath         func(ctx context.Context) error
	SlowPathCounters *slowpath.Counters // of SlowPath; may be nil
	// Redirects has connections leave the muxes until ctx ends; nil: none do.
	Redirects  func(ctx context.Context) error
	Redirector *redirect.Redirector // of it
	Floods     synflood.Limits      // zero: synflood.DefaultLimits
	// Load samples the interface; nil: overloads are not noticed.
	Load func() (overload.Sample, error)
	// NoShares switches fair dropping off: overloads are only reported.
	NoShares bool
	Manager  Manager
	Log      *slog.Logger
	// Telemetry exports metrics and traces; nil: there is none.
	Telemetry *telemetry.Telemetry
}

// Mux is the daemon of one mux.
type Mux struct {
	config  Config
	hops    NextHops
	routes  *announce.Announcer
	state   *forwarding.State
	reports *reports
	acks    *acknowledgements
	tasks   *task.Runner
	leases  *neighbor.Neighbor // nil: there are no neighbor prefixes
	floods  *synflood.Watcher
	loads   *fairdrop.Watcher
	stream  *telemetry.Stream
	chunks  wire.PrefixChunks                  // of the stream alone
	ports   wire.PortLists                     // likewise
	cut     atomic.Pointer[context.CancelFunc] // ends the stream
}

// New adopts the live tables of the data plane. Run announces their VIPs.
func New(config Config) (*Mux, error) {
	m := &Mux{config: config, stream: telemetry.NewStream("weir_mux")}
	m.routes = announce.New(announce.Config{
		Aggregates: config.Aggregates, NATPrefixes: config.NATPrefixes, Neighbors: config.NeighborPrefixes, OverridesFile: config.RoutesFile, Speaker: config.Speaker,
		Discard: config.Discard, Log: config.Log,
	})
	var err error
	m.state, err = forwarding.New(forwarding.Config{
		Name: config.Name, Settings: config.Settings, Lead: config.Lead, Datapath: config.Datapath,
		NATPrefixes: config.NATPrefixes, Routes: m.routes, Log: config.Log,
	})
	if err != nil {
		return nil, err
	}
	m.reports = newReports(m)
	m.acks = newAcknowledgements(m)
	m.tasks = task.New(task.Config{
		Name: config.Name, Datapath: config.Datapath, Answer: config.Manager.AnswerTask, Running: m.state.Running,
		Log: config.Log,
	})
	m.floods = synflood.New(config.Datapath, config.Floods, m.reports.addEvent, config.Log)
	m.loads = fairdrop.New(fairdrop.Config{
		Datapath: config.Datapath, Load: config.Load, ReportOnly: config.NoShares,
		Event: m.reports.addEvent, Report: m.reports.wake.Set, Log: config.Log,
	})
	if len(config.NeighborPrefixes) > 0 {
		m.leases = neighbor.New(neighbor.Config{
			Name: config.Name, Datapath: config.Datapath, Segment: config.Segment, Serving: m.serving,
			MAC:   func() segment.MAC { return m.state.MAC() },
			Renew: config.Leases.RenewNeighbors, Leave: config.Leases.Leave, Event: m.reports.addEvent, Report: m.reports.wake.Set, Now: boottime.Since, Log: config.Log,
		})
	}
	m.hops, err = config.NextHops(func(s netlink.State) {
		m.setNextHops(s)
		m.reports.wake.Set()
	})
	if err != nil {
		return nil, err
	}
	m.state.Start(m.hops.SetDestinations)
	m.observe()
	return m, nil
}

// Run serves until ctx ends, handOver tells, or something fails that a restart may mend. Only the
// first of these ends forwarding: the other two leave the data plane and the routes to a successor.
func (m *Mux) Run(ctx context.Context, handOver <-chan os.Signal) error {
	group, serving := errgroup.WithContext(context.WithoutCancel(ctx))
	following, stopFollowing := context.WithCancel(serving)
	defer stopFollowing()
	resolving, stopResolving := context.WithCancel(serving)
	defer stopResolving()
	// The speaker must not see the failure of another part before it is told what it means.
	speaking, stopSpeaking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSpeaking()
	group.Go(func() error { return m.hops.Run(resolving) })
	group.Go(func() error { return m.follow(following) })
	group.Go(func() error { return m.reports.run(following) })
	group.Go(func() error { return m.acks.run(following) })
	group.Go(func() error { return m.state.WriteLists(following, m.acks.wake.Set, m.reports.wake.Set) })
	group.Go(func() error { return m.tasks.Run(following) })
	for _, run := range []func(context.Context) error{m.config.KeepDiscarding, m.config.SlowPath, m.config.Redirects} {
		if run != nil {
			group.Go(func() error { return run(resolving) })
		}
	}
	if m.leases != nil {
		group.Go(func() error { return m.leases.Run(resolving) }) // also while it drains: it gives its VIPs back
	}
	group.Go(func() error { return m.sweep(resolving) })
	group.Go(func() error { return m.state.SweepNAT(resolving) })
	group.Go(func() error { return m.floods.Run(resolving) })
	group.Go(func() error { return m.loads.Run(resolving) })
	group.Go(func() error {
		err := m.config.Speaker.Run(speaking)
		if err == nil && speaking.Err() == nil {
			err = errors.New("the bgp speaker ended")
		}
		return err
	})

	stopping := false
	select {
	case <-ctx.Done():
		stopping = true
		stopFollowing()
		m.drain(serving)
	case <-handOver:
		m.config.Log.Info("handing over: forwarding goes on, routes stay")
		m.config.Speaker.HandOver()
	case <-serving.Done():
		m.config.Speaker.HandOver()
	}
	stopFollowing()
	stopSpeaking()
	stopResolving()
	err := group.Wait()
	m.config.Telemetry.Close() // it reads the tables
	if stopping && err == nil {
		return errors.Join(m.config.Datapath.Unload(), m.config.Discard(nil))
	}
	return errors.Join(err, m.config.Datapath.Close())
}

// setNextHops applies new next hops. The other muxes know by its registration that a MAC which claims VIPs is this one's.
func (m *Mux) setNextHops(s netlink.State) {
	before := m.state.MAC()
	m.state.SetNextHops(s)
	if cut := m.cut.Load(); cut != nil && m.leases != nil && m.state.MAC() != before {
		(*cut)()
	}
}

// serving are the VIPs that the mux forwards for; false: it is to attract nothing, or has no tables yet.
func (m *Mux) serving() (map[netip.Addr]bool, bool) {
	vips, ok := m.routes.Serving()
	return vips, ok && (len(vips) > 0 || !m.state.Joins())
}

// drain withdraws the routes, and forwards until routers have stopped using them.
func (m *Mux) drain(ctx context.Context) {
	m.config.Log.Info("stopping: routes are withdrawn, then traffic drains", "drain", m.config.DrainTime)
	if err := m.routes.Stop(); err != nil {
		m.config.Log.Warn("withdraw all routes", "err", err)
	}
	wake.After(ctx, m.config.DrainTime)
	if err := m.routes.End(); err != nil {
		m.config.Log.Warn("withdraw NAT prefixes", "err", err)
	}
}

// follow applies the manager's stream to the tables.
func (m *Mux) follow(ctx context.Context) error {
	return rpc.Follow(ctx, m.config.Log, "mux", m.open, func(message *weirv1.SyncMuxResponse) error { return m.apply(ctx, message) })
}

// apply applies one message of the stream. After an error the stream must begin with a snapshot.
func (m *Mux) apply(ctx context.Context, message *weirv1.SyncMuxResponse) error {
	m.stream.Message()
	m.tasks.Enqueue(message.GetTasks())
	alone, err := m.chunks.Take(message)
	if err != nil {
		return err
	}
	if alone || tasksAlone(message) {
		return nil
	}
	if message.GetSnapshot() {
		m.acks.reconnect.Store(true)
		defer m.reports.wake.Set()
	}
	defer m.acks.wake.Set()
	// Not a rejection: that counts as an answer, after which hosts use ports.
	if err := m.ports.CompleteMux(message); err != nil {
		return fmt.Errorf("read port ranges of generation %d, whole lists are needed: %w", message.GetGeneration(), err)
	}
	update, err := wire.MuxUpdateFromProto(message, &m.chunks)
	if err != nil {
		err = fmt.Errorf("read the tables of generation %d: %w", message.GetGeneration(), err)
		m.state.Reject(model.Generation(message.GetGeneration()), err)
		return err
	}
	began := time.Now()
	ctx, _, ended := m.config.Telemetry.Follow(ctx, "apply", began, message.GetTraceParents(),
		attribute.Int64("weir.generation", int64(update.Generation)))
	err = errors.Join(m.floods.SetSecrets(update.SYNSecrets), m.state.Apply(ctx, update))
	if err == nil {
		m.floods.SetBacklogs(update.Backlogs)
		m.config.Redirector.Update(update)
		m.chunks.Applied(update)
	}
	ended(err)
	m.stream.Applied(time.Since(began), err)
	return err
}

// tasksAlone says whether the message changes no table.
func tasksAlone(m *weirv1.SyncMuxResponse) bool {
	return len(m.GetTasks()) > 0 && !m.GetSnapshot() && len(m.GetEndpoints())+len(m.GetRemoved())+len(m.GetPool()) == 0 &&
		len(m.GetSnat())+len(m.GetSnatRemoved())+len(m.GetPrefixLists())+len(m.GetPrefixListsRemoved()) == 0
}

// sweepInterval is how often the cells of expired flows are freed. Packets don't wait for it.
const sweepInterval = 5 * time.Second

// sweep frees expired flows until ctx ends, so that the counters of the flow table are current.
func (m *Mux) sweep(ctx context.Context) error {
	for {
		wake.After(ctx, sweepInterval)
		if ctx.Err() != nil {
			return nil
		}
		if _, err := m.config.Datapath.SweepFlows(); err != nil {
			m.config.Log.Warn("sweep the flow table", "err", err)
		}
	}
}

// open begins a stream, by which the manager learns of the mux.
func (m *Mux) open(ctx context.Context) (*connect.ServerStreamForClient[weirv1.SyncMuxResponse], error) {
	m.stream.Opens()
	m.ports = wire.PortLists{}
	ctx, cut := context.WithCancel(ctx)
	m.cut.Store(&cut) // before the MAC is read
	mac := m.state.MAC()
	return m.config.Manager.SyncMux(ctx, &weirv1.SyncMuxRequest{
		Name: m.config.Name, Version: m.config.Version, Joins: m.state.Joins(), PrefixChunks: m.chunks.IDs(), SnatDeltas: true,
		NeighborPrefixes: compile.PrefixTexts(m.config.NeighborPrefixes), Mac: net.HardwareAddr(mac[:]).String(),
		Addresses: m.config.Settings.Sources(), NatPrefixes: compile.PrefixTexts(m.config.NATPrefixes), Aggregates: compile.PrefixTexts(m.config.Aggregates),
	})
}
