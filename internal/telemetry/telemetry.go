package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Process names the program that is observed.
type Process struct {
	Program string // "weir-mux"
	Name    string // of the node or replica; may be empty
	Version string
}

// Telemetry is one process's observation.
type Telemetry struct {
	log      *slog.Logger
	registry *prometheus.Registry
	provider *sdktrace.TracerProvider // nil: traces are off
	listener net.Listener             // nil: nothing is served
	server   *http.Server
	served   sync.WaitGroup

	libraries atomic.Pointer[string] // prefix of their metrics; nil: none
	closed    sync.Once

	mu     sync.Mutex
	checks []check
}

// liveHeap is what of the heap was in use at the last garbage collection, go_gc_heap_live_bytes: what the process needs,
// while its resident memory holds garbage too.
var liveHeap = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile("^/gc/heap/live:bytes$")}

// closeTimeout bounds how long the spans that are left may take to leave.
const closeTimeout = 3 * time.Second

// Start begins to serve, and to send traces, as the options say. Close ends it.
func Start(ctx context.Context, o Options, p Process, log *slog.Logger) (*Telemetry, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	t := &Telemetry{log: log, registry: prometheus.NewRegistry()}
	t.registry.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(liveHeap)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		buildInfo(p),
	)
	listener, err := listen(ctx, &o, log)
	if err != nil {
		return nil, err
	}
	t.listener = listener
	if t.provider, err = newProvider(ctx, &o, p, log); err != nil {
		t.Close()
		return nil, err
	}
	if t.listener != nil {
		t.server = newServer(t)
		t.served.Go(t.serve)
		log.Debug("metrics are served", "listen", t.listener.Addr().String())
	}
	return t, nil
}

// listen takes the address. One that nobody chose may be taken by another program.
func listen(ctx context.Context, o *Options, log *slog.Logger) (net.Listener, error) {
	if o.Listen == "" {
		return nil, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	switch {
	case err == nil:
		return listener, nil
	case !o.chosen():
		log.Warn("metrics are not served: choose an address by --metrics-listen", "err", err)
		return nil, nil
	}
	return nil, fmt.Errorf("listen on %s: %w: choose another address with --metrics-listen", o.Listen, err)
}

// Close ends serving, and sends the spans that are left. A second one does nothing.
func (t *Telemetry) Close() {
	if t != nil {
		t.closed.Do(t.close)
	}
}

func (t *Telemetry) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	switch {
	case t.server != nil:
		if err := t.server.Shutdown(ctx); err != nil {
			t.server.Close()
		}
		t.served.Wait()
	case t.listener != nil:
		t.listener.Close()
	}
	if t.provider != nil {
		if err := t.provider.Shutdown(ctx); err != nil {
			t.log.Warn("the last spans did not leave", "err", err)
		}
	}
}

// Address is where it is served; nil: nowhere.
func (t *Telemetry) Address() net.Addr {
	if t == nil || t.listener == nil {
		return nil
	}
	return t.listener.Addr()
}

// Register adds the collectors to /metrics. Two that describe the same metric are a bug.
func (t *Telemetry) Register(all ...prometheus.Collector) {
	if t != nil {
		t.registry.MustRegister(all...)
	}
}

// AddLibrary adds what a library registers by itself, as etcd does, of the metrics with the prefix.
func (t *Telemetry) AddLibrary(prefix string) {
	if t != nil {
		t.libraries.Store(&prefix)
	}
}

// Gather returns what /metrics shows.
func (t *Telemetry) Gather() ([]*dto.MetricFamily, error) {
	families, err := t.registry.Gather()
	prefix := t.libraries.Load()
	if prefix == nil {
		return families, err
	}
	others, failed := prometheus.DefaultGatherer.Gather()
	for _, family := range others {
		if strings.HasPrefix(family.GetName(), *prefix) {
			families = append(families, family)
		}
	}
	return families, errors.Join(err, failed)
}

// Tracer makes spans, which are nothing while traces are off.
func (t *Telemetry) Tracer() trace.Tracer {
	if t == nil || t.provider == nil {
		return noop.Tracer{}
	}
	return t.provider.Tracer(scope)
}

// Tracing says whether spans go anywhere.
func (t *Telemetry) Tracing() bool { return t != nil && t.provider != nil }

func (t *Telemetry) serve() {
	if err := t.server.Serve(t.listener); !errors.Is(err, http.ErrServerClosed) {
		t.log.Warn("metrics are served no more", "err", err)
	}
}

// buildInfo is a gauge of 1 that says what runs.
func buildInfo(p Process) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "weir_build_info",
		Help:        "What runs: always 1.",
		ConstLabels: prometheus.Labels{"program": p.Program, "version": p.Version, "name": p.Name},
	}, func() float64 { return 1 })
}
