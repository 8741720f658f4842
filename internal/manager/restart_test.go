package manager

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/cluster"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// runChild is a manager in a process of its own. It prints a line once it listens.
func runChild(value string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	dir, listen, _ := strings.Cut(value, ",")
	m, err := New(ctx, Config{DataDir: dir, Listen: listen, Log: slog.New(slog.DiscardHandler), Insecure: true})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer m.Close()
	fmt.Println("ready")
	if err := m.Run(ctx); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// process is a manager that can be killed.
type process struct {
	dir, listen string
	cmd         *exec.Cmd
}

func newProcess(t *testing.T) *process {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return &process{dir: t.TempDir(), listen: l.Addr().String()}
}

func (p *process) url() string { return "http://" + p.listen }

func (p *process) start(t *testing.T) {
	t.Helper()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), childEnv+"="+p.dir+","+p.listen)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the manager does not start: %q, %v", line, err)
	}
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// What was acknowledged survives a kill at any moment; no generation goes back; and a mux that
// comes back gets the tables that it had.
func TestKilledManagersLoseNothing(t *testing.T) {
	t.Parallel()
	p := newProcess(t)
	p.start(t)
	mux, client := startMux(t, p.url(), "mux1", "10.1.1.2"), dial(t, p.url())
	startHost(t, p.url(), "host1", "10.2.1.2")
	startHost(t, p.url(), "host2", "10.2.2.2")
	eventually(t, "all are registered", func() bool { return nodes(t, client) == 3 })

	var acknowledged atomic.Int64 // applies that were answered; the n-th holds n+1 endpoints
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		applyUntil(ctx, client, &acknowledged)
	}()
	var highest uint64
	for round := range 3 {
		target := acknowledged.Load() + 5
		eventually(t, "more was applied", func() bool { return acknowledged.Load() >= target })
		p.kill() // in the middle of applies
		kept := acknowledged.Load()
		p.start(t)
		status, err := client.GetStatus(t.Context(), &weirv1.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if status.Generation < highest {
			t.Fatalf("round %d: the generation went back from %d to %d", round, highest, status.Generation)
		}
		highest = status.Generation
		if status.Endpoints < uint32(kept) {
			t.Fatalf("round %d: %d endpoints are left of %d that were acknowledged", round, status.Endpoints, kept)
		}
	}
	stop()
	<-ended

	settled := generation(t, client)
	eventually(t, "the mux is current", func() bool { return mux.has(settled) })
	before, snapshots := mux.String(), mux.snapshots
	p.kill()
	p.start(t)
	eventually(t, "the mux came back", func() bool {
		mux.mu.Lock()
		defer mux.mu.Unlock()
		return mux.snapshots > snapshots
	})
	if after := mux.String(); after != before {
		t.Errorf("a restart changed the tables from\n%s\nto\n%s", before, after)
	}
	if mux.wentBack {
		t.Error("a generation that the mux got was less than one before")
	}
}

// applyUntil applies shop with one more endpoint each time, again and again if there is no answer. The
// last call is not cut short: it could still take effect after the caller looked.
func applyUntil(ctx context.Context, client *rpc.Client, acknowledged *atomic.Int64) {
	vip := shop()
	for ctx.Err() == nil && len(vip.Endpoints) < 500 {
		if _, err := client.ApplyVIPs(context.WithoutCancel(ctx), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}}); err != nil {
			continue
		}
		acknowledged.Store(int64(len(vip.Endpoints)))
		next := shop().Endpoints[0]
		next.Port = uint32(1000 + len(vip.Endpoints))
		vip.Endpoints = append(vip.Endpoints, next)
	}
}

// A manager that dies between a report of health and the tables leaves nothing undone.
func TestTablesFollowHealthAfterARestart(t *testing.T) {
	cfg := Config{DataDir: t.TempDir()}
	url, stop := start(t, cfg)
	t.Run("apply", func(t *testing.T) {
		client := dial(t, url)
		startHost(t, url, "host1", "10.2.1.2")
		startHost(t, url, "host2", "10.2.2.2")
		eventually(t, "both are connected", func() bool { return nodes(t, client) == 2 })
		apply(t, url, shop())
	})
	stop()
	reportTo(t, cfg.DataDir, health(t, strings.Fields("TCP 203.0.113.10:80 10.3.1.11:8080 healthy")))
	url, _ = start(t, cfg)
	client := dial(t, url)
	eventually(t, "all buckets are the healthy backend's", func() bool {
		r, err := client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
		if err != nil {
			return false
		}
		status := r.Vip.Endpoints[0].Backends[0].Status
		return status.Health == "healthy" && status.Buckets == status.BucketsTotal
	})
}

// reportTo writes host1's health to a store that no manager runs on.
func reportTo(t *testing.T, dir string, said model.BackendHealth) {
	t.Helper()
	s, err := cluster.Open(t.Context(), cluster.Config{Config: etcd.Config{DataDir: dir, Log: logger(t)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	err = s.Store.Health.Update(t.Context(), "host1", func(*store.State) desired.HostHealth {
		return desired.HostHealth{{Endpoint: said.Endpoint, Backend: said.Backend}: said}
	})
	cancel()
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
}

func nodes(t *testing.T, client *rpc.Client) int {
	r, err := client.ListNodes(t.Context(), &weirv1.ListNodesRequest{})
	if err != nil {
		return 0
	}
	n := 0
	for _, node := range r.Nodes {
		if node.Status.Connected {
			n++
		}
	}
	return n
}

func generation(t *testing.T, client *rpc.Client) uint64 {
	t.Helper()
	status, err := client.GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return status.Generation
}
