package apiserver

import (
	"compress/gzip"
	"io"
	"math"
	"net/http"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/diagnosis"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/nodesync"
	"github.com/weirlb/weir/internal/resource"
	"github.com/weirlb/weir/internal/snatalloc"
	"github.com/weirlb/weir/internal/webui"
)

// minCompressed is the size of an answer from which on packing it pays, in bytes.
const minCompressed = 16 << 10

// service serves WeirService and SyncService.
type service struct {
	*snatalloc.Allocator
	resources
	diagnoses
	nodeStreams
}

func (c *Config) service() service { return service{c.Ports, c.Resources, c.Diagnosis, c.Nodes} }

// The services that service is made of, by names that differ.
type (
	resources   = *resource.Service
	diagnoses   = *diagnosis.Service
	nodeStreams = *nodesync.Service
)

// Handler serves gRPC, gRPC-Web, Connect and REST from the same services.
func (s *Server) Handler() (http.Handler, error) {
	options := connect.WithHandlerOptions(connect.WithConditionalHandlerOptions(bounded), connect.WithCompressMinBytes(minCompressed),
		connect.WithInterceptors(s.observer, guard{s}))
	mux := http.NewServeMux()
	mux.Handle(weirv1connect.NewWeirServiceHandler(s.service(), options))
	// Nodes and managers are near: packing what they are told costs more than sending it.
	plain := connect.WithCompressMinBytes(math.MaxInt)
	mux.Handle(weirv1connect.NewSyncServiceHandler(s.service(), options, plain))
	mux.Handle(weirv1connect.NewClusterServiceHandler(s.Cluster, options, plain))
	mux.Handle(weirv1connect.NewTrustServiceHandler(s.Trust, options))
	if err := s.handleREST(mux); err != nil {
		return nil, err
	}
	mux.HandleFunc("GET /healthz", healthz(s.Replica.StoreError))
	page := &webui.Handler{Sessions: s.sessions, Identify: s.callers.userOf, Provider: s.Provider, SignIn: s.Trust.SignIn, Log: s.Log}
	if err := page.Init(); err != nil {
		return nil, err
	}
	api := s.observer.rest(mux, forwarder{s.Config}.forward(mux))
	// The page is of this manager, whoever leads, and is there while the store is not.
	both := func(w http.ResponseWriter, r *http.Request) {
		if webui.Serves(r.URL.Path) {
			page.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	}
	return s.admission(http.HandlerFunc(both), procedureOf(mux)), nil
}

// bounded holds the requests of a procedure to its bounds. What strangers may call inflates nothing. What is packed is read
// once: gzip's fastest level takes a third of the time of its default, for a few bytes more.
func bounded(spec connect.Spec) []connect.HandlerOption {
	b := limits.Of(spec.Procedure)
	options := []connect.HandlerOption{connect.WithReadMaxBytes(b.Bytes), limits.Codecs(b.Messages)}
	if authz.AllowsAnonymous(spec.Procedure) {
		return append(options, connect.WithCompression("gzip", nil, nil))
	}
	return append(options, connect.WithCompression("gzip", func() connect.Decompressor { return &gzip.Reader{} }, fastestGzip))
}

func fastestGzip() connect.Compressor {
	w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // there is this level
	return w
}

// healthz answers whether the store answered its last check: a request that anybody may make costs the store nothing.
func healthz(storeError func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := storeError(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Write([]byte("ok\n")) //nolint:errcheck // the client is gone: nobody is left to tell
	}
}
