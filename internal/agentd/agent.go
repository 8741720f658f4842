package agentd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"golang.org/x/sync/errgroup"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/agentd/backlog"
	"github.com/weirlb/weir/internal/agentd/evacuation"
	"github.com/weirlb/weir/internal/agentd/fastpath"
	"github.com/weirlb/weir/internal/agentd/healthcheck"
	"github.com/weirlb/weir/internal/agentd/multipath"
	"github.com/weirlb/weir/internal/agentd/overlay"
	"github.com/weirlb/weir/internal/agentd/snat"
	"github.com/weirlb/weir/internal/agentd/traffic"
	agentfastpath "github.com/weirlb/weir/internal/datapath/agent/fastpath"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/look"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/wire"
)

const (
	statusInterval = 2 * time.Second
	sweepInterval  = 5 * time.Second
	// maxRunning bounds the checks that run at once, each of which holds a socket.
	maxRunning = 1024
)

// Datapath is the data plane. Changes come one at a time; Verdicts may be called meanwhile.
type Datapath interface {
	// Refresh reads the uplink again, which may have changed or been replaced.
	Refresh() error
	Apply(upserts []model.HostBackend, removed []model.HostBackendKey) error
	Replace(all []model.HostBackend) error
	SetMuxes(muxes []netip.Prefix) error
	// Steer makes these the only VIPs whose packets are taken from switches, and steered. Those that do not fit it refuses:
	// others follow. Steered counts such packets by why they went where they did.
	Steer(vips []steering.VIP) error
	Steered() (map[string]model.Counter, error)
	// SetWorkloads sets the interfaces of workloads. Refused addresses are not reachable, even if the host has them.
	SetWorkloads(interfaces map[netip.Addr]int, refused []netip.Addr) error
	// SetHashKey sets the hash key of the pool, by which sessions are counted by bucket, and packets steered.
	SetHashKey(key flowhash.Key)
	// SetSYNSecrets sets the secrets of the muxes' SYN cookies.
	SetSYNSecrets(secrets []model.SYNSecret) error
	SetGeneration(generation model.Generation) error
	Generation() (model.Generation, error)
	Verdicts() (map[string]model.Counter, error)
	LostDatagrams() (map[string]uint64, error)
}

// Workloads finds the interface of an address, and signals when that may have changed.
type Workloads interface {
	Locate(addresses []netip.Addr) (interfaces map[netip.Addr]int, missing map[netip.Addr]string, err error)
	Watch(ctx context.Context, changed func()) error
}

// Manager is the manager's API for hosts.
type Manager interface {
	SyncHost(ctx context.Context, request *weirv1.SyncHostRequest) (*connect.ServerStreamForClient[weirv1.SyncHostResponse], error)
	ReportHost(ctx context.Context, request *weirv1.ReportHostRequest) (*weirv1.ReportHostResponse, error)
	AnswerTask(ctx context.Context, request *weirv1.AnswerTaskRequest) (*weirv1.AnswerTaskResponse, error)
}

// Config configures an Agent.
type Config struct {
	Name        string         // of the node; a DNS label
	Addresses   []netip.Addr   // of the uplink, by which the manager knows the host
	Native      []netip.Prefix // other addresses of the host that may be native workloads
	Version     string
	Uplink      string // for the status only
	MaxSessions int    // capacity
	// Live are the rules of the data plane at the start.
	Live map[model.HostBackendKey]model.HostBackend

	Datapath Datapath
	// Sweep ends idle sessions and counts the others. It runs beside changes of the data plane.
	Sweep func() (session.Report, error)
	// KeepAlive probes workloads whose clients' timestamps would grow too old, and returns their number. It runs every
	// KeepAliveInterval.
	KeepAlive         func() (asked int, err error)
	KeepAliveInterval time.Duration
	// EvacuateSessions evacuates the sessions of workloads that have left the host.
	EvacuateSessions func(workloads map[netip.Addr]bool) (session.EvacuatedSessions, error)
	Workloads        Workloads
	Manager          Manager
	Probe            healthcheck.Probe
	Listeners        func() ([]netlink.Listener, error) // of the host's own stack
	Ports            snat.Config
	Log              *slog.Logger
	// Explain runs a frame that comes in by the uplink through the programs, without sending, counting or remembering it.
	Explain func(frame []byte) (look.Explanation, error)
	// Networks runs bypass of virtual networks; nil: there is none.
	Networks *overlay.Controller
	// Telemetry exports metrics and traces; nil: there is none.
	Telemetry *telemetry.Telemetry
	// Fastpath is the data plane's part of Fastpath; nil: there is none. ControlMessages reads the packets of theirs that
	// the programs hand to user space, until closed; Send sends messages to their peers.
	Fastpath        fastpath.Datapath
	ControlMessages interface {
		Read() (agentfastpath.ControlMessage, error)
		Close() error
	}
	Send func(from, to netip.Addr, datagram []byte) error
	// Multipath is the data plane's part of Multipath TCP; nil: there is none. Send sends tokens to their homes.
	Multipath multipath.Datapath
	// Samples are of what the data plane delivers; nil: it takes none.
	Samples traffic.Samples
}

// Agent is the daemon of one host.
type Agent struct {
	config    Config
	tables    *tables
	checks    *healthcheck.Checks
	reports   *reports
	ports     *snat.Ports
	portLists wire.PortLists // of the stream alone
	stream    *telemetry.Stream
	fastpath  *fastpath.Controller  // nil: there is none
	multipath *multipath.Controller // likewise
	leaving   *evacuation.Departures
	asks      *inspection
	backlogs  *backlog.Watcher

	asked, unasked atomic.Uint64 // keepalive probes, and rounds that failed
}

// New adopts the state of the data plane, and changes nothing.
func New(config Config) (*Agent, error) {
	t, err := newTables(config)
	if err != nil {
		return nil, err
	}
	p := snat.New(config.Ports, config.Name, config.Log, t.list)
	for _, s := range config.Ports.Live {
		t.listed = append(t.listed, s.Key.Address)
	}
	r := newReports(config, t, p)
	c := healthcheck.New(config.Log, t.within(config.Probe), rand.Float64, maxRunning, r.wake.Set)
	r.findings = c.Findings
	a := &Agent{config: config, tables: t, checks: c, reports: r, ports: p, stream: telemetry.NewStream("weir_agent"), asks: newInspection(config)}
	a.backlogs = backlog.New(backlog.Config{Listeners: config.Listeners, Native: t.nativeBackends, Changed: r.wake.Set, Log: config.Log})
	r.backlogs = a.backlogs.Report
	a.leaving = evacuation.New(config.Log, slices.Collect(maps.Values(config.Live)), config.Workloads.Locate, config.EvacuateSessions)
	if config.Fastpath != nil {
		a.fastpath = fastpath.New(config.Log, config.Fastpath, config.Send)
	}
	if config.Multipath != nil {
		a.multipath = multipath.New(multipath.Config{Log: config.Log, Datapath: config.Multipath, Addresses: config.Addresses, Send: config.Send})
		r.subflows = a.multipath.Report
	}
	a.observe()
	return a, nil
}

// Run serves until ctx ends, or until a failure that a restart may repair. The data plane stays as it is.
func (a *Agent) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.config.Workloads.Watch(ctx, a.tables.locate) })
	group.Go(func() error { return a.checks.Run(ctx) })
	group.Go(func() error { return a.reports.run(ctx) })
	group.Go(func() error { return a.sweep(ctx) })
	group.Go(func() error { return a.keepAlive(ctx) })
	group.Go(func() error { return a.leaving.Run(ctx) })
	group.Go(func() error { return a.ports.Run(ctx) })
	group.Go(func() error { return a.asks.run(ctx) })
	group.Go(func() error { return a.backlogs.Run(ctx) })
	if a.fastpath != nil {
		group.Go(func() error {
			return a.fastpath.Run(ctx, a.config.ControlMessages.Read, a.config.ControlMessages.Close)
		})
	}
	if a.multipath != nil {
		group.Go(func() error { return a.multipath.Run(ctx) })
	}
	if a.config.Networks != nil {
		group.Go(func() error { return a.config.Networks.Run(ctx) })
	}
	if a.config.Samples != nil {
		group.Go(func() error { return a.reports.traffic.Run(ctx, a.config.Samples) })
	}
	group.Go(func() error {
		return rpc.Follow(ctx, a.config.Log, "host", a.open, a.apply)
	})
	a.tables.locate()
	return group.Wait()
}

// open opens a stream, which registers the host.
func (a *Agent) open(ctx context.Context) (*connect.ServerStreamForClient[weirv1.SyncHostResponse], error) {
	a.stream.Opens()
	a.portLists = wire.PortLists{}
	request := &weirv1.SyncHostRequest{Name: a.config.Name, Version: a.config.Version, Multipath: a.multipath != nil, PortBlocks: a.config.Ports.Datapath != nil, SnatDeltas: true}
	for _, address := range a.config.Addresses {
		request.Addresses = append(request.Addresses, address.String())
	}
	return a.config.Manager.SyncHost(ctx, request)
}

// apply applies one message of the stream. After an error, an invalid message, the stream must begin with a snapshot.
func (a *Agent) apply(message *weirv1.SyncHostResponse) error {
	a.stream.Message()
	if tasks := message.GetTasks(); len(tasks) > 0 { // it holds nothing else
		a.asks.enqueue(tasks)
		return nil
	}
	if err := a.portLists.CompleteHost(message); err != nil {
		return fmt.Errorf("read port ranges of generation %d, whole lists are needed: %w", message.GetGeneration(), err)
	}
	update, err := wire.HostUpdateFromProto(message)
	if err == nil {
		err = a.tables.steer(update)
	}
	if err != nil {
		a.tables.reject(model.Generation(message.GetGeneration()), err)
		a.reports.wake.Set()
		return fmt.Errorf("read generation %d: %w", message.GetGeneration(), err)
	}
	began := time.Now()
	_, _, ended := a.config.Telemetry.Follow(context.Background(), "apply", began, message.GetTraceParents(), attribute.Int64("weir.generation", int64(update.Generation)))
	backends := a.tables.apply(update)
	if update.Snapshot { // not before: what is refused of a generation that an earlier process applied is not known
		a.reports.restart()
	}
	err = errors.Join(a.config.Datapath.SetSYNSecrets(update.SYNSecrets), a.tables.refusal(), a.ports.Apply(update))
	if a.fastpath != nil {
		a.fastpath.SetKeys(update.Keys)
		a.fastpath.SetServed(backends)
	}
	a.leaving.Set(backends)
	ended(err)
	a.stream.Applied(time.Since(began), err)
	a.checks.Set(backends, time.Now())
	a.reports.repeat(update.Backends)
	a.reports.wake.Set()
	return nil
}

// sweep ends idle sessions.
func (a *Agent) sweep(ctx context.Context) error {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		before := a.tables.standing()
		found, err := a.config.Sweep()
		a.reports.sessions(before, found, err)
		a.backlogs.CountSYNs(found.SYNs, time.Now())
		a.backlogs.CountSYNs(a.config.Networks.SYNs(), time.Now())
		a.config.Log.Debug("swept sessions", "live", found.Live, "ended", found.Ended)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
