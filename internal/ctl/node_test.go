package ctl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/rogpeppe/go-internal/testscript"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
)

// errorsAs is errors.As, which is false of nil.
func errorsAs[T any](err error, target *T) bool { return err != nil && errors.As(err, target) }

// nodesKey is where a script keeps its nodes.
type nodesKey struct{}

// node is a mux or host without a data plane.
type node struct {
	client *rpc.Client
	stop   func()
	host   *weirv1.ReportHostRequest
}

// follow starts a node that holds a stream until it is stopped, and waits until the manager has registered it.
func follow[T any](
	ts *testscript.TestScript, name string,
	open func(context.Context, *rpc.Client) (*connect.ServerStreamForClient[T], error),
	apply func(context.Context, *rpc.Client, *T) error,
) *node {
	client, err := rpc.NewClient(ts.Getenv(rpc.ManagerVariable))
	ts.Check(err)
	ctx, cancel := context.WithCancel(context.Background())
	done, registered := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(registered) })
	go func() {
		defer close(done)
		log := slog.New(slog.DiscardHandler)
		err := rpc.Follow(ctx, log, name,
			func(ctx context.Context) (*connect.ServerStreamForClient[T], error) { return open(ctx, client) },
			func(m *T) error {
				defer first()
				return apply(ctx, client, m)
			})
		if err != nil {
			ts.Logf("%s: %v", name, err)
		}
	}()
	n := &node{client: client}
	n.stop = func() {
		cancel()
		<-done
		client.Close()
	}
	ts.Defer(func() { n.stop() })
	nodes(ts)[name] = n
	select {
	case <-registered:
	case <-done:
	case <-time.After(10 * time.Second):
		ts.Fatalf("the manager has not registered %s", name)
	}
	return n
}

func nodes(ts *testscript.TestScript) map[string]*node {
	return ts.Value(nodesKey{}).(map[string]*node)
}

// startMux registers a mux that runs what it gets, refuses it, says nothing, or does tasks and counts.
func startMux(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: mux runs|refuses|ignores|works NAME ADDRESS")
	}
	mode, name := args[0], args[1]
	var counting counter
	follow(ts, name,
		func(ctx context.Context, c *rpc.Client) (*connect.ServerStreamForClient[weirv1.SyncMuxResponse], error) {
			return c.SyncMux(ctx, &weirv1.SyncMuxRequest{Name: name, Addresses: args[2:], Version: "test"})
		},
		func(ctx context.Context, c *rpc.Client, m *weirv1.SyncMuxResponse) error {
			if len(m.GetTasks()) > 0 && mode != "ignores" {
				return doTasks(ctx, c, name, m.GetTasks())
			}
			report := &weirv1.ReportMuxRequest{Name: name, Generation: m.GetGeneration(), Status: &weirv1.MuxStatus{
				XdpMode: "native", Interface: "eth0",
				Peers: []*weirv1.BGPPeer{{Address: "10.1.0.254", As: 65000, State: "established", Bfd: "up"}},
			}}
			switch {
			case mode == "ignores":
				return nil
			case mode == "refuses" && len(m.GetEndpoints()) > 0:
				report.Generation = 0
				report.Rejection = &weirv1.Rejection{Generation: m.GetGeneration(), Reason: "the table buckets is full"}
			case mode == "works" && len(m.GetEndpoints()) > 0:
				counting.follow(ctx, c, report, m.GetEndpoints()[0].GetEndpoint())
			}
			_, err := c.ReportMux(ctx, report)
			return err
		})
}

// startHost registers a host that reports every new backend to be healthy.
func startHost(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: host NAME ADDRESS...")
	}
	name := args[0]
	told := map[string]bool{}
	n := follow(ts, name,
		func(ctx context.Context, c *rpc.Client) (*connect.ServerStreamForClient[weirv1.SyncHostResponse], error) {
			return c.SyncHost(ctx, &weirv1.SyncHostRequest{Name: name, Addresses: args[1:], Version: "test", Multipath: true})
		},
		func(ctx context.Context, c *rpc.Client, m *weirv1.SyncHostResponse) error {
			report := &weirv1.ReportHostRequest{Name: name, Generation: m.GetGeneration(), Status: &weirv1.HostStatus{Uplink: "eth0"}}
			for _, b := range m.GetBackends() {
				key := b.GetEndpoint().String() + b.GetTunnel()
				if told[key] {
					continue
				}
				told[key] = true
				report.Health = append(report.Health, &weirv1.BackendHealth{
					Endpoint: b.GetEndpoint(), Address: b.GetAddress(), Port: b.GetPort(), Health: "healthy",
				})
			}
			_, err := c.ReportHost(ctx, report)
			return err
		})
	n.host = &weirv1.ReportHostRequest{Name: name}
}

// startSwitch registers a switch that takes what it is told.
func startSwitch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: switch NAME ADDRESS")
	}
	name := args[0]
	follow(ts, name,
		func(ctx context.Context, c *rpc.Client) (*connect.ServerStreamForClient[weirv1.SyncSwitchResponse], error) {
			return c.SyncSwitch(ctx, &weirv1.SyncSwitchRequest{Name: name, Addresses: args[1:], Version: "test"})
		},
		func(ctx context.Context, c *rpc.Client, m *weirv1.SyncSwitchResponse) error {
			_, err := c.ReportSwitch(ctx, &weirv1.ReportSwitchRequest{
				Name: name, Generation: m.GetGeneration(), Status: &weirv1.SwitchStatus{Driver: "fake", Members: 64},
			})
			return err
		})
}

// disconnect ends a node's stream.
func disconnect(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || nodes(ts)[args[0]] == nil {
		ts.Fatalf("usage: disconnect NAME")
	}
	nodes(ts)[args[0]].stop()
}

// reportHealth lets a host report a backend.
func reportHealth(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 5 || !slices.Contains([]string{"healthy", "unhealthy"}, args[3]) {
		ts.Fatalf("usage: report HOST VIP:PORT BACKEND:PORT healthy|unhealthy REASON")
	}
	n := nodes(ts)[args[0]]
	vip, backend := addrPort(ts, args[1]), addrPort(ts, args[2])
	_, err := n.client.ReportHost(context.Background(), &weirv1.ReportHostRequest{
		Name: n.host.GetName(), Status: &weirv1.HostStatus{Uplink: "eth0"},
		Health: []*weirv1.BackendHealth{{
			Endpoint: &weirv1.EndpointKey{Vip: vip.address, Protocol: "TCP", Port: vip.port},
			Address:  backend.address, Port: backend.port, Health: args[3], Reason: args[4],
		}},
	})
	ts.Check(err)
}

type addressPort struct {
	address string
	port    uint32
}

func addrPort(ts *testscript.TestScript, s string) addressPort {
	i := strings.LastIndex(s, ":")
	p := addressPort{address: strings.Trim(s[:max(i, 0)], "[]")}
	_, err := fmt.Sscan(s[i+1:], &p.port)
	ts.Check(err)
	return p
}
