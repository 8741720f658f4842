// Package apiserver serves the API of a manager: gRPC, gRPC-Web, Connect and REST, from the same services.
//
//	connlimit ─▶ TLS ─▶ admission: who calls, is there room ─▶ forward: to the leader, what writes
//	                          ─▶ gRPC, Connect ─▶ guard: rules, rates, bounds ─▶ services
//	                          ─▶ REST ─▶ gateway ─▶ in process ─▶ guard ─▶ the same
//	                          ─▶ /ui/: the web page (package webui), which calls this API
//
// Invariants:
//   - nothing of a stranger's request is read, inflated or parsed before it has a place;
//   - each message of each call passes guard, whatever it came by;
//   - a stream ends when its caller is revoked or may do other things;
//   - what a page of another origin makes a browser ask for is refused, whatever the browser shows.
package apiserver

import (
	"log/slog"
	"net"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weirlb/weir/internal/audit"
	"github.com/weirlb/weir/internal/clusterservice"
	"github.com/weirlb/weir/internal/diagnosis"
	"github.com/weirlb/weir/internal/inflight"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/nodesync"
	"github.com/weirlb/weir/internal/replica"
	"github.com/weirlb/weir/internal/resource"
	"github.com/weirlb/weir/internal/snatalloc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/tokenbucket"
	"github.com/weirlb/weir/internal/trustservice"
	"github.com/weirlb/weir/internal/webui"
	"github.com/weirlb/weir/internal/webui/oidc"
)

// Config is what a Server serves, and by what it decides.
type Config struct {
	Name     string           // of this manager
	Listener *net.TCPListener // which Run takes over
	Identity *pki.Identity
	Store    *store.Store
	Replica  *replica.Replica
	Audit    *audit.Log
	Rates    *tokenbucket.Buckets // of known callers
	Tracer   trace.Tracer
	Now      func() time.Time
	Log      *slog.Logger
	Stop     func() // ends the streams

	Ports     *snatalloc.Allocator
	Resources *resource.Service
	Diagnosis *diagnosis.Service
	Nodes     *nodesync.Service
	Cluster   *clusterservice.Service
	Trust     *trustservice.Service
	Provider  *oidc.Provider // of OpenID Connect, which signs users of the web page in; nil: there is none

	UnauthenticatedTime time.Duration // that strangers may take to send a request
	SlowReader          time.Duration // that a reader may take none of an answer
}

// Server serves the API of a manager.
type Server struct {
	*Config

	observer        observer
	callers         authenticator
	unauthenticated unauthenticated
	open            openStreams
	requests        inflight.Limit // of known callers, streams left out
	large           inflight.Limit // likewise, of those that need much memory
	sessions        *webui.Sessions
}

// New returns a Server, which serves nothing before Run.
func New(cfg *Config, metrics *Metrics) *Server {
	s := &Server{
		Config: cfg, observer: observer{metrics, cfg.Tracer}, open: openStreams{trusted: cfg.Store.Trust.Watch}, sessions: webui.NewSessions(cfg.Now),
	}
	s.callers = authenticator{
		identity: cfg.Identity, store: cfg.Store, unauthenticated: &s.unauthenticated, sessions: s.sessions, now: cfg.Now,
	}
	return s
}
