package nodesync

import (
	"context"
	"log/slog"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired/admission"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync/lease"
	"github.com/weirlb/weir/internal/nodesync/publish"
	"github.com/weirlb/weir/internal/nodesync/switchfeed"
	"github.com/weirlb/weir/internal/nodesync/traffic"
	"github.com/weirlb/weir/internal/replica"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/sessioncount"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/telemetry"
)

// Replica is this manager among the replicas.
type Replica interface {
	Stamp() (cluster, epoch uint64)
	SeenGeneration(node replica.Seen) model.Generation
	CatchUp(ctx context.Context, node replica.Seen) error
	VerifyLeadership(ctx context.Context, seen uint64)
	AwaitLeader(ctx context.Context) (address string, err error)
	Partitioned() (partitioned bool, began <-chan struct{})
}

// PortAuditor compares the ports of source NAT that nodes report with those that the store has.
type PortAuditor interface {
	AuditMux(mux string, reported *weirv1.MuxSNATStatus)
	AuditHost(host string, reported []*weirv1.SNATUse)
}

// Config says what a Service works with.
type Config struct {
	*lease.Leases

	Name     string // of this manager
	Store    *store.Store
	Hub      *publish.Hub
	Switches *switchfeed.Hub
	Replica  Replica
	Peer     func(address string) (*rpc.Client, error) // of another manager
	Reports  *Reports
	Sessions sessioncount.Counts
	Ports    PortAuditor
	Traffic  *traffic.Meter
	Events   interface{ Record(eventlog.Event) }

	TellInterval time.Duration // bounds the age of a node's counters that the other managers know

	Tenants   func() *admission.Tenants                                       // newest, that nodes are admitted by
	OpenTasks func(node string) (queue <-chan *weirv1.NodeTask, ended func()) // what operators ask of a node

	Telemetry *telemetry.Telemetry
	Now       func() time.Time
	Log       *slog.Logger
	Stopping  <-chan struct{} // closed when streams shall end
}

// Service serves the streams and reports of nodes.
type Service struct {
	Config

	metrics  *Metrics
	unacked  *unacked
	acks     acks // Hub
	draining drainingHosts
}

// acks are told which generations nodes have.
type acks interface {
	AckMux(name string, runs, answered model.Generation) (here bool)
	AckHost(name string, generation model.Generation)
}

// New makes a service, which counts in metrics.
func New(cfg Config, metrics *Metrics) *Service {
	return &Service{Config: cfg, metrics: metrics, unacked: newUnacked(metrics), acks: cfg.Hub}
}
