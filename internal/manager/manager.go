package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/apiserver"
	"github.com/weirlb/weir/internal/audit"
	"github.com/weirlb/weir/internal/boottime"
	"github.com/weirlb/weir/internal/cluster"
	"github.com/weirlb/weir/internal/clusterservice"
	"github.com/weirlb/weir/internal/controller/backlog"
	"github.com/weirlb/weir/internal/controller/choice"
	"github.com/weirlb/weir/internal/controller/flood"
	"github.com/weirlb/weir/internal/controller/hostnumber"
	"github.com/weirlb/weir/internal/controller/keyring"
	"github.com/weirlb/weir/internal/controller/links"
	"github.com/weirlb/weir/internal/controller/nodelifecycle"
	"github.com/weirlb/weir/internal/controller/overload"
	"github.com/weirlb/weir/internal/controller/placement"
	"github.com/weirlb/weir/internal/controller/reported"
	"github.com/weirlb/weir/internal/controller/status"
	"github.com/weirlb/weir/internal/controller/table"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/diagnosis"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync"
	"github.com/weirlb/weir/internal/nodesync/lease"
	"github.com/weirlb/weir/internal/nodesync/muxrate"
	"github.com/weirlb/weir/internal/nodesync/publish"
	"github.com/weirlb/weir/internal/nodesync/switchfeed"
	"github.com/weirlb/weir/internal/nodesync/traffic"
	"github.com/weirlb/weir/internal/replica"
	"github.com/weirlb/weir/internal/resource"
	"github.com/weirlb/weir/internal/resource/live"
	"github.com/weirlb/weir/internal/sessioncount"
	"github.com/weirlb/weir/internal/snatalloc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/tokenbucket"
	"github.com/weirlb/weir/internal/trustservice"
	"github.com/weirlb/weir/internal/webui/oidc"
)

// Config says where a manager listens and where its store is.
type Config struct {
	Name          string   // of this manager among the replicas
	Listen        string   // "127.0.0.1:7400"
	Advertise     string   // host:port at which the other managers reach Listen, if it is another
	PeerListen    string   // host:port for the embedded etcd's peers; empty: this manager is the only one
	Join          string   // a manager, or several, of the cluster to join at the first start; empty: found one
	TokenFile     string   // holds the token to join with
	CAHash        string   // of the CA of the cluster to join
	Insecure      bool     // neither TLS nor authentication: everybody may do everything
	DataDir       string   // of the embedded etcd
	EtcdEndpoints []string // of an external etcd; then DataDir holds certificates only
	EtcdTLS       etcd.TLS // with it
	Version       string
	Log           *slog.Logger
	Telemetry     telemetry.Options
	OIDC          oidc.Config // who signs users of the web page in

	CertificateLife time.Duration // of certificates of nodes; 0: trust.NodeLife
	Quota           int64         // of the embedded etcd, in bytes; 0: etcd.DefaultQuota
	KeyInterval     time.Duration // how long a key of Fastpath signs; 0: keyring.DefaultKeyInterval
}

// Manager is one replica of the control plane.
type Manager struct {
	cfg        Config
	log        *slog.Logger
	listener   *net.TCPListener // until the API server takes it over
	cluster    *cluster.Cluster
	store      *store.Store
	hub        *publish.Hub
	switches   *switchfeed.Hub
	reports    *nodesync.Reports
	sessions   sessioncount.Counts
	stopping   chan struct{} // closed when streams shall end
	now        func() time.Time
	lifecycle  *nodelifecycle.Controller
	keys       *keyring.Controller
	numbers    *hostnumber.Controller
	leases     *lease.Leases
	tables     *table.Controller
	status     *status.Controller
	overload   *overload.Controller
	placements *placement.Controller
	choices    *choice.Controller
	floods     *flood.Controller
	links      *links.Controller
	backlogs   *backlog.Controller
	replica    *replica.Replica
	events     *events.Recorder
	observed   *telemetry.Telemetry
	peers      *replica.Peers

	identity *pki.Identity
	provider *oidc.Provider      // nil: none
	rates    tokenbucket.Buckets // of known callers
	audit    *audit.Log
	api      *apiserver.Server

	meters         *meters
	nodes          *nodesync.Service
	clusterService *clusterservice.Service
	inventory      inventory
	allocator      *snatalloc.Allocator
	measured       *muxrate.Meter
	resources      *resource.Service
	trust          *trustservice.Service
	diagnosis      *diagnosis.Service
}

// New takes the address to listen on and opens the store. Nothing is served before Run.
func New(ctx context.Context, cfg Config) (*Manager, error) {
	if cfg.KeyInterval = cmp.Or(cfg.KeyInterval, keyring.DefaultKeyInterval); cfg.KeyInterval < keyring.MinKeyInterval {
		return nil, fmt.Errorf("--fastpath-key-interval must be at least %s, is %s", keyring.MinKeyInterval, cfg.KeyInterval)
	}
	listener, err := listen(ctx, cfg.Listen)
	if err != nil {
		return nil, err
	}
	cfg.Name = cmp.Or(cfg.Name, cluster.DefaultName)
	identity, err := pki.New(ctx, pki.Config{
		Insecure: cfg.Insecure, Name: cfg.Name, DataDir: cfg.DataDir, Advertise: cfg.Advertise, PeerListen: cfg.PeerListen,
		ExternalEtcd: len(cfg.EtcdEndpoints) > 0, Join: cfg.Join, TokenFile: cfg.TokenFile, CAHash: cfg.CAHash, Log: cfg.Log,
	}, listener.Addr())
	if err != nil {
		listener.Close()
		return nil, err
	}
	observed, err := telemetry.Start(ctx, cfg.Telemetry, telemetry.Process{Program: "weir-manager", Name: cfg.Name, Version: cfg.Version}, cfg.Log)
	if err != nil {
		listener.Close()
		return nil, err
	}
	advertised := advertise(cfg, listener.Addr().String())
	provider, err := newProvider(cfg, advertised)
	if err != nil {
		observed.Close()
		listener.Close()
		return nil, err
	}
	opened, err := openCluster(ctx, cfg, identity, advertised)
	if err != nil {
		observed.Close()
		listener.Close()
		return nil, err
	}
	m := &Manager{
		observed: observed, meters: newMeters(), cfg: cfg, log: cfg.Log, listener: listener, cluster: opened, store: opened.Store,
		reports: nodesync.NewReports(cfg.Log), stopping: make(chan struct{}), now: time.Now,
		sessions: sessioncount.New(), peers: replica.NewPeers(identity.Access), identity: identity, provider: provider, audit: audit.New(cfg.Name, opened.Store.Audit, cfg.Log),
	}
	m.makeParts()
	return m, nil
}

// makeParts makes what serves calls and what keeps the desired state. All of it goes by m.now, but for leases, which
// end while the machine sleeps too.
func (m *Manager) makeParts() {
	clock := func() time.Time { return m.now() }
	makeKeepers(m, clock)
	m.observe()
	m.switches = switchfeed.New(func(name string) uint32 {
		_, detail := m.reports.Newest(m.store.State(), m.store.State().Nodes.At(name))
		return detail.GetSwitch().GetMembers()
	})
	traced := nodesync.TracePublished(m.observed)
	m.hub = publish.New(m.store, func(after model.Generation, s *store.State, since time.Time) {
		m.switches.Publish(s)
		traced(after, s, since)
	})
	m.tables = &table.Controller{Store: m.store, View: m.view, Sessions: m.sessions, Settle: desired.SettleTime, Now: clock, Log: m.log}
	m.status = &status.Controller{
		Name: m.cfg.Name, Store: m.store, WithProgress: m.hub.WithProgress, Reported: m.reports.Newest, Events: m.events, Interval: status.DefaultInterval, Now: clock, Log: m.log,
	}
	// Reports come every DefaultTellInterval; that another manager does not follow any more is noticed as late.
	said := &reported.Source{Newest: m.reports.LatestSeen, Stale: 3 * nodesync.DefaultTellInterval, Log: m.log}
	m.overload = &overload.Controller{Store: m.store, Reports: said, Events: m.events, Steps: m.meters.steps, Now: clock, Log: m.log}
	m.placements = &placement.Controller{
		Store: m.store, Published: m.switches.Generation, Latest: m.reports.Latest, Reports: said, Said: m.reports.Switches, Ready: m.switches.Placed, Events: m.events, Now: clock, Log: m.log,
	}
	seen := traffic.New(traffic.Config{Name: m.cfg.Name, Store: m.store, Peer: m.peers.At, Now: clock})
	m.choices = &choice.Controller{Store: m.store, Newest: m.reports.Newest, Matrix: seen.Read, Now: clock, Log: m.log}
	m.floods = &flood.Controller{Store: m.store, Reports: said, Events: m.events, Now: clock, Log: m.log}
	m.links = &links.Controller{Store: m.store, Reports: said, Events: m.events, Now: clock, Log: m.log}
	m.backlogs = &backlog.Controller{
		Store: m.store, Reports: said, Publish: m.hub.SetBacklogs, Refused: m.meters.refusedBacklog, Now: clock, Log: m.log,
	}
	m.allocator = snatalloc.New(snatalloc.Config{
		Store: m.store, Hub: m.hub, Events: m.events, Rates: &m.rates, Reported: m.reports.Newest, Now: clock, Log: m.log,
	}, m.meters.ports)
	m.measured = muxrate.New(muxrate.Config{
		Name: m.cfg.Name, Store: m.store, Latest: m.reports.LatestHere, Peer: m.peers.At, Interval: muxrate.DefaultInterval, Now: clock, Log: m.log,
	})
	m.resources = resource.New(&resource.Config{
		Name: m.cfg.Name, Version: m.cfg.Version, Store: m.store, StoreName: m.cluster.String, Hub: m.hub, Recorder: m.events, Sessions: m.sessions, FreeFor: m.tables.FreeFor, Reported: m.reports.Newest,
		Uses: m.allocator.ReportedUses, Chooser: m.choices, Forget: m.forgetNode, Bookmark: live.BookmarkInterval, Rates: m.measured, Now: clock, Log: m.log, Stopping: m.stopping,
	})
	m.diagnosis = diagnosis.New(diagnosis.Service{
		Name: m.cfg.Name, Store: m.store, StreamOwner: m.hub.StreamOwner, Peer: m.peers.At, BackendStatuses: m.resources.BackendStatuses,
		Reported: m.reports.Newest,
	})
	m.nodes = nodesync.New(nodesync.Config{
		Name: m.cfg.Name, Store: m.store, Hub: m.hub, Switches: m.switches, Replica: m.replica, Peer: m.peers.At, Reports: m.reports, Sessions: m.sessions,
		Ports: m.allocator, Leases: m.leases, Traffic: seen, Events: m.events, Tenants: m.resources.VIPs.Tenants, OpenTasks: m.diagnosis.OpenTasks, TellInterval: nodesync.DefaultTellInterval,
		Telemetry: m.observed, Now: clock, Log: m.log, Stopping: m.stopping,
	}, m.meters.nodes)
	m.clusterService = &clusterservice.Service{Name: m.cfg.Name, Version: m.cfg.Version, Cluster: m.cluster, Peer: m.peers.At, Nodes: m.nodes, Traffic: seen}
	m.trust = &trustservice.Service{
		Store: m.store, Identity: m.identity, CertificateLife: m.cfg.CertificateLife, View: m.view, Reported: m.reports.Newest, Now: clock, Log: m.log,
	}
	m.api = apiserver.New(&apiserver.Config{
		Name: m.cfg.Name, Listener: m.listener, Identity: m.identity, Store: m.store, Replica: m.replica, Audit: m.audit, Rates: &m.rates,
		Tracer: m.observed.Tracer(), Now: clock, Log: m.log, Stop: func() { close(m.stopping) },
		Ports: m.allocator, Resources: m.resources, Diagnosis: m.diagnosis, Nodes: m.nodes, Cluster: m.clusterService, Trust: m.trust, Provider: m.provider,
		UnauthenticatedTime: limits.Callers[limits.Unauthenticated].Sending, SlowReader: apiserver.DefaultSlowReader,
	}, m.meters.api)
}

// newProvider is who signs users of the web page in; nil: nobody does.
func newProvider(cfg Config, advertised string) (*oidc.Provider, error) {
	if cfg.Insecure && cfg.OIDC.Issuer != "" {
		return nil, errors.New("--oidc-issuer needs a manager without --insecure: by that one everybody may do everything")
	}
	return oidc.New(cfg.OIDC, advertised, time.Now)
}

// makeKeepers makes what goes by the store alone.
func makeKeepers(m *Manager, clock func() time.Time) {
	m.replica = replica.New(m.cfg.Name, replicaStore{m.store}, clock, m.log)
	m.events = events.New(m.cfg.Name, m.store, clock, m.log)
	m.lifecycle = &nodelifecycle.Controller{Store: m.store, Silence: nodelifecycle.DefaultSilence, Ignored: m.meters.silenceIgnored, Now: clock, Log: m.log}
	m.keys = &keyring.Controller{Store: m.store, KeyInterval: m.cfg.KeyInterval, SecretLife: keyring.DefaultSecretLife, Now: clock, Log: m.log}
	m.numbers, m.leases = &hostnumber.Controller{Store: m.store, Now: clock, Log: m.log}, lease.New(m.store.Watch, m.store.Presence, boottime.Now, m.log)
}

// view is the State that users are shown.
func (m *Manager) view() *store.State { return m.hub.WithProgress(m.store.State()) }

// forgetNode drops what a node that was deleted has reported.
func (m *Manager) forgetNode(node string) {
	m.reports.Forget(node)
	m.sessions.Forget(node)
}

// replicaStore is what a replica reads of a store.
type replicaStore struct{ *store.Store }

// Epoch is that in which this replica leads.
func (s replicaStore) Epoch() (model.Epoch, <-chan struct{}) { return s.Election.Epoch() }

// Trust is the newest.
func (s replicaStore) Trust() (*truststore.Trust, <-chan struct{}) { return s.Store.Trust.Watch() }

// VerifyLeadership asks etcd who leads.
func (s replicaStore) VerifyLeadership(ctx context.Context) error { return s.Election.Verify(ctx) }

// openCluster opens the store and agrees with it on the cluster's CA. An embedded etcd reads the CA that its peers must have when it
// starts: one of a restored store, which was started with another, is started again.
func openCluster(ctx context.Context, cfg Config, identity *pki.Identity, advertised string) (*cluster.Cluster, error) {
	for {
		c, err := cluster.Open(ctx, cluster.Config{Address: advertised, Config: etcd.Config{
			Name: cfg.Name, DataDir: cfg.DataDir, Endpoints: cfg.EtcdEndpoints, TLS: cfg.EtcdTLS, Quota: cfg.Quota, Log: cfg.Log,
			PeerListen: cfg.PeerListen, Join: joining(cfg, identity, advertised), PeerTLS: identity.PeerTLS(), Lone: identity.Lone(),
		}})
		if err != nil {
			return nil, identity.Forget(err)
		}
		changed, err := identity.Settle(ctx, c.Store, "https://"+reachable(advertised))
		if err == nil && (!changed || len(cfg.EtcdEndpoints) > 0) {
			return c, nil
		}
		c.Close()
		if err != nil {
			return nil, err
		}
	}
}

// Address is where the manager listens.
func (m *Manager) Address() net.Addr { return m.listener.Addr() }

// Close ends the store. It is called after Run, or instead of it.
func (m *Manager) Close() {
	m.observed.Close()
	m.listener.Close()
	m.peers.Close()
	m.cluster.Close()
}

// Run serves until ctx ends, then ends the streams and returns when calls under way are answered.
func (m *Manager) Run(ctx context.Context) error {
	// The store outlives the server, whose last calls still write.
	storeCtx, stopStore := context.WithCancel(context.WithoutCancel(ctx))
	defer stopStore()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return m.cluster.Run(storeCtx) })
	group.Go(func() error { return m.hub.Run(ctx) })
	group.Go(func() error { return m.switches.Run(ctx) })
	group.Go(func() error { return m.identity.Keep(ctx, m.store, m.log) })
	group.Go(func() error { return m.audit.Run(ctx) })
	group.Go(func() error { return m.hub.WatchMuxes(ctx) })
	group.Go(func() error { return m.leases.Run(ctx) }) // each manager grants some
	group.Go(func() error { return m.nodes.FollowManagers(ctx) })
	group.Go(func() error { return m.measured.Run(ctx) })
	group.Go(func() error { return m.replica.RunPartitionCheck(ctx) })
	group.Go(func() error { return m.backlogs.Run(ctx) }) // each manager tells the muxes that it has
	group.Go(func() error { return m.events.Run(ctx) })   // muxes report to any replica
	group.Go(func() error {
		return m.replica.RunWhileLeading(ctx, m.tables.Reconcile, m.lifecycle.Run, m.tables.EndMoves, m.allocator.RunQuarantine, m.tables.WatchFreeSlots, m.allocator.RunRestore, m.allocator.RunAudit, m.status.Run, m.keys.RotateFastpathKeys, m.keys.RotateSYNSecrets, m.keys.RotateFBTMasters, m.numbers.Run, m.overload.Run, m.placements.Run, m.choices.Run, m.floods.Run, m.links.Run, m.cluster.Promote)
	})
	group.Go(func() error {
		defer stopStore()
		return m.api.Run(ctx)
	})
	state := m.store.State()
	m.log.Info("manager runs", "listen", m.Address().String(), "store", m.cluster.String(),
		"generation", state.Generation, "vips", state.VIPs.Len(), "nodes", state.Nodes.Len())
	return group.Wait()
}
