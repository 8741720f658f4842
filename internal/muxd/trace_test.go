package muxd

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manager"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/telemetry"
)

// receiver takes spans by OTLP.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*trace.Span
}

func (r *receiver) Export(_ context.Context, e *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range e.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func startReceiver(t *testing.T) (*receiver, string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, r := grpc.NewServer(), &receiver{}
	collector.RegisterTraceServiceServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })
	return r, "http://" + listener.Addr().String()
}

// names counts the spans below root, itself included, by name.
func (r *receiver) below(root string) map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := map[string]int{}
	children := map[string][]*trace.Span{}
	var next []*trace.Span
	for _, s := range r.spans {
		children[string(s.GetParentSpanId())] = append(children[string(s.GetParentSpanId())], s)
		if s.GetName() == root {
			next = append(next, s)
		}
	}
	for len(next) > 0 {
		s := next[0]
		next = append(next[1:], children[string(s.GetSpanId())]...)
		names[s.GetName()]++
	}
	return names
}

// startTraced runs a manager whose spans go to the receiver, and returns its URL.
func startTraced(t *testing.T, endpoint string) string {
	t.Helper()
	m, err := manager.New(t.Context(), manager.Config{
		Listen: "127.0.0.1:0", Insecure: true, DataDir: t.TempDir(), Version: "test", Log: slog.New(slog.DiscardHandler),
		Telemetry: telemetry.Options{Endpoint: endpoint},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		m.Close()
	})
	return "http://" + m.Address().String()
}

// runTraced runs a mux, on a data plane without a kernel, that follows the manager and sends its spans.
func runTraced(t *testing.T, name, url, endpoint string) {
	t.Helper()
	client, err := rpc.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	observed, err := telemetry.Start(t.Context(), telemetry.Options{Endpoint: endpoint},
		telemetry.Process{Program: "weir-mux", Name: name, Version: "test"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, false, func(c *Config) {
		c.Name, c.Settings.Source4, c.Manager, c.Telemetry = name, addr("10.7.0."+name[len(name)-1:]), client, observed
	})
	ctx, cancel := context.WithCancel(context.Background())
	end := b.run(ctx)
	t.Cleanup(func() {
		cancel()
		if err := end(); err != nil {
			t.Error(err)
		}
		client.Close()
	})
}

// A change by one call is one trace: from the call to the tables of every mux.
func TestAChangeIsOneTraceToEveryMux(t *testing.T) {
	spans, endpoint := startReceiver(t)
	url := startTraced(t, endpoint)
	client, err := rpc.NewClient(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	var following sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); following.Wait() })
	following.Go(func() { followAsHost(ctx, client) })
	runTraced(t, "mux-1", url, endpoint)
	runTraced(t, "mux-2", url, endpoint)
	await(t, "the muxes and the host", func() bool {
		nodes, err := client.ListNodes(t.Context(), &weirv1.ListNodesRequest{})
		connected := 0
		for _, n := range nodes.GetNodes() {
			if n.GetStatus().GetConnected() && (n.GetRole() == "host" || n.GetStatus().GetGeneration() > 0) {
				connected++
			}
		}
		return err == nil && connected == 3
	})
	_, err = client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{{
		Name: "shop", Address: "203.0.113.10", Endpoints: []*weirv1.Endpoint{{
			Protocol: "TCP", Port: 80, Backends: []*weirv1.Backend{{Address: "10.3.1.11", Port: 8080, Host: "host1"}},
		}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]int
	defer func() {
		if t.Failed() {
			t.Logf("spans of the call: %v", got)
		}
	}()
	await(t, "one trace", func() bool {
		got = spans.below("weir.v1.WeirService/ApplyVIPs")
		return got["weir.v1.WeirService/ApplyVIPs"] == 1 && got["validate"] == 1 && got["compute"] == 1 && got["commit"] == 1 &&
			got["publish"] == 1 && got["sync"] == 3 && got["apply"] == 2
	})
}

// followAsHost takes what the manager sends to host1 and says so, until ctx ends.
func followAsHost(ctx context.Context, client *rpc.Client) {
	open := func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.SyncHostResponse], error) {
		return client.SyncHost(ctx, &weirv1.SyncHostRequest{Name: "host1", Addresses: []string{"10.2.1.2"}, Version: "test"})
	}
	_ = rpc.Follow(ctx, slog.New(slog.DiscardHandler), "host", open, func(m *weirv1.SyncHostResponse) error {
		_, err := client.ReportHost(ctx, &weirv1.ReportHostRequest{Name: "host1", Generation: m.GetGeneration()})
		return err
	})
}

// await waits until holds does.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(40 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
