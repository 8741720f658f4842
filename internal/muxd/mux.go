package muxd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/sync/errgroup"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overload"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/slowpath"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/wire"
)

// Datapath is the data plane.
type Datapath interface {
	Mode() string
	Settings() (mux.Settings, error)
	SetSettings(mux.Settings) error
	Generation() (model.Generation, error)
	SetGeneration(model.Generation) error
	Update(mux.Update) error
	// PrefixList is what the tables have of a prefix list, FreeSourceRows how many prefixes there is room for beside all.
	PrefixList(name string) model.PrefixSet
	FreeSourceRows() int
	Endpoints() ([]model.EndpointKey, error)
	VIPs() ([]netip.Addr, error) // those without endpoints too
	Tunnels() []netip.Addr
	SetNextHops(map[netip.Addr]model.NextHop) error
	SetPoolMembers(self string, pool []model.PoolMember) error
	SetMuxes(n int) error // that limits of VIPs are divided among
	RefusedCounters() (map[netip.Addr]model.Counter, error)
	// OfferedLoad is what has come for VIPs so far, and the workloads of tenants.
	OfferedLoad() (vips map[netip.Addr]mux.OfferedLoad, tenants map[string]int, err error)
	// SetShares has these VIPs alone lose packets, and their sources noted, which Sources tells since the last call.
	SetShares(map[netip.Addr]overload.Cut) error
	Sources() (map[netip.Addr][]overload.Source, error)
	SweepFlows() (freed int, err error)
	Verdicts() (map[string]model.Counter, error)
	LostDatagrams() (map[string]uint64, error)
	EndpointCounters() (map[model.EndpointKey]model.Counter, error)
	// SetSYNSecrets takes over the secrets of SYN cookies, and the time of day.
	SetSYNSecrets([]model.SYNSecret) error
	// SYNStates, SYNCounters and SetSYNState are of the endpoints whose SYNs the mux may answer when it thinks fit.
	SYNStates() map[model.EndpointKey]mux.SYNState
	SYNCounters() (map[model.EndpointKey]mux.SYNCounter, error)
	SetSYNState(model.EndpointKey, mux.SYNState) error
	SNATCounters() (map[netip.Addr]model.Counter, error)
	SNATDigest() (ranges int, digest uint64)
	Usage() (mux.Usage, error)
	TenantUsage() ([]mux.TenantUsage, error)
	// Explain runs a frame through the program without sending or counting it.
	Explain(frame []byte) (model.Explanation, error)
	// Capture copies packets until its bounds or ctx end it. It hands on those that came since the last
	// time, and how many were lost so far; an error of to ends it.
	Capture(ctx context.Context, c model.Capture, to func(packets []model.CapturedPacket, lost uint64) error) error
	// TakeOver lets the tables take the place of those of another layout that forward until then, if
	// there are any.
	TakeOver() error
	Close() error  // leaves it forwarding
	Unload() error // ends forwarding
}

// Speaker announces routes.
type Speaker interface {
	Announce([]bgp.Route) error // the full set
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
	SyncMux(ctx context.Context, request *weirv1.SyncMuxRequest) (*connect.ServerStreamForClient[weirv1.SyncMuxResponse], error)
	ReportMux(ctx context.Context, request *weirv1.ReportMuxRequest) (*weirv1.ReportMuxResponse, error)
	AcknowledgeMux(ctx context.Context) (*rpc.Acknowledgements, error)
	AnswerTask(ctx context.Context, request *weirv1.AnswerTaskRequest) (*weirv1.AnswerTaskResponse, error)
}

// Config configures a Mux.
type Config struct {
	Name      string // of the node; a DNS label
	Version   string
	Interface string
	Source4   netip.Addr // outer sources; one may be missing
	Source6   netip.Addr
	// Prefix4 and Prefix6 are where the outer sources come from instead, by flow; invalid: they do not.
	Prefix4, Prefix6 netip.Prefix
	Encapsulation    mux.Encapsulation
	MTU              int           // of the interface, until NextHops tells another
	MAC              [6]byte       // likewise
	Routes           Routes        // what is announced
	RoutesFile       string        // keeps the route overrides over restarts; empty: they are not kept
	DrainTime        time.Duration // between the withdrawal of the routes and the end of forwarding
	Lead             time.Duration // between the withdrawal of a VIP and the end of its endpoints
	Datapath         Datapath      // owned by the Mux
	Speaker          Speaker
	NextHops         func(changed func(HopState)) (NextHops, error)
	// Discard makes the announced prefixes all whose packets the kernel drops, if they get to it.
	Discard func([]netip.Prefix) error
	// SlowPath handles packets that the fast path can't, until ctx ends; nil: they are dropped.
	SlowPath         func(ctx context.Context) error
	SlowPathCounters *slowpath.Counters // of SlowPath; may be nil
	// Redirects has connections leave the muxes until ctx ends; nil: none do.
	Redirects  func(ctx context.Context) error
	Redirector *Redirector // of it
	Floods     FloodLimits // zero: DefaultFloodLimits
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
	tables  *tables
	reports *reports
	acks    *acknowledgements
	tasks   *tasks
	floods  *floods
	watch   *watch
	stream  *telemetry.Stream
	chunks  wire.PrefixChunks // of the stream alone
}

// New adopts the live tables of the data plane. Run announces their VIPs.
func New(config Config) (*Mux, error) {
	t, err := newTables(config)
	if err != nil {
		return nil, err
	}
	m := &Mux{config: config, tables: t, reports: newReports(config, t), tasks: newTasks(config, t), stream: telemetry.NewStream("weir_mux")}
	m.acks = newAcknowledgements(config, t, m.reports)
	m.floods = newFloods(config, m.reports.addEvent)
	m.watch = newWatch(config, m.reports)
	m.reports.overload = m.watch.warning
	m.reports.pressures = func() []*weirv1.VIPPressure { return append(m.watch.pressures(), m.floods.pressures()...) }
	m.hops, err = config.NextHops(func(s HopState) {
		t.hopsChanged(s)
		m.reports.trigger()
	})
	if err != nil {
		return nil, err
	}
	t.destinations = m.hops.SetDestinations
	t.destinations(config.Datapath.Tunnels())
	m.observe()
	return m, t.announceLive()
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
	group.Go(func() error { return m.tables.write(following, m.acks.trigger, m.reports.trigger) })
	group.Go(func() error { return m.tasks.run(following) })
	if m.config.SlowPath != nil {
		group.Go(func() error { return m.config.SlowPath(resolving) })
	}
	if m.config.Redirects != nil {
		group.Go(func() error { return m.config.Redirects(resolving) })
	}
	group.Go(func() error { return m.sweep(resolving) })
	group.Go(func() error { return m.floods.run(resolving) })
	group.Go(func() error { return m.watch.run(resolving) })
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

// drain withdraws the routes, and forwards until routers have stopped using them.
func (m *Mux) drain(ctx context.Context) {
	m.config.Log.Info("stopping: routes are withdrawn, then traffic drains", "drain", m.config.DrainTime)
	if err := m.tables.withdrawAll(); err != nil {
		m.config.Log.Warn("withdraw all routes", "err", err)
	}
	wait(ctx, m.config.DrainTime)
}

// wait waits for d, or less if ctx is done.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// follow applies the manager's stream to the tables.
func (m *Mux) follow(ctx context.Context) error {
	return rpc.Follow(ctx, m.config.Log, "mux", m.open, func(message *weirv1.SyncMuxResponse) error {
		m.stream.Message()
		m.tasks.enqueue(message.GetTasks())
		alone, err := m.chunks.Take(message)
		if err != nil {
			return err
		}
		if alone || tasksAlone(message) {
			return nil
		}
		if message.GetSnapshot() {
			m.acks.reconnect.Store(true)
			defer m.reports.trigger()
		}
		defer m.acks.trigger()
		update, err := wire.MuxUpdateFromProto(message, &m.chunks)
		if err != nil {
			err = fmt.Errorf("read the tables of generation %d: %w", message.GetGeneration(), err)
			m.tables.reject(model.Generation(message.GetGeneration()), err)
			return err
		}
		began := time.Now()
		ctx, _, ended := m.config.Telemetry.Follow(ctx, "apply", began, message.GetTraceParents(), attribute.Int64("weir.generation", int64(update.Generation)))
		err = errors.Join(m.floods.setSecrets(update.SYNSecrets), m.tables.apply(ctx, update))
		if err == nil {
			m.config.Redirector.update(update)
			m.chunks.Applied(update)
		}
		ended(err)
		m.stream.Applied(time.Since(began), err)
		return err
	})
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
		wait(ctx, sweepInterval)
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
	request := &weirv1.SyncMuxRequest{Name: m.config.Name, Version: m.config.Version, Joins: m.tables.joins(), PrefixChunks: m.chunks.IDs()}
	for _, source := range []netip.Addr{m.config.Source4, m.config.Source6} {
		if source.IsValid() {
			request.Addresses = append(request.Addresses, source.String())
		}
	}
	for _, prefix := range []netip.Prefix{m.config.Prefix4, m.config.Prefix6} {
		if prefix.IsValid() {
			request.Addresses = append(request.Addresses, prefix.String())
		}
	}
	return m.config.Manager.SyncMux(ctx, request)
}
