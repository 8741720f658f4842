package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/manager"
)

// testManager is a real manager that listens in a host's namespace, and a client of it.
type testManager struct {
	weirv1connect.WeirServiceClient

	t    *testing.T
	stop func()
}

func startManager(t *testing.T, ns *netns.NS, data string) *testManager {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	const address = "127.0.0.1:7400"
	var served *manager.Manager
	err := ns.Do(func() (err error) {
		served, err = manager.New(ctx, manager.Config{
			Insecure: true,
			Listen:   address, DataDir: data, Version: "test", Log: slog.New(slog.DiscardHandler),
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- served.Run(ctx) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = ns.Do(func() (err error) {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}}
	stop := func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		served.Close()
	}
	return &testManager{weirv1connect.NewWeirServiceClient(&http.Client{Transport: transport}, "http://"+address), t, stop}
}

// apply puts the container behind a VIP, checked every 100 ms, once the host is registered.
func (m *testManager) apply(check string) {
	m.t.Helper()
	health := &weirv1.HealthCheck{
		Check: &weirv1.HealthCheck_Tcp{}, Interval: durationpb.New(100 * time.Millisecond), Timeout: durationpb.New(100 * time.Millisecond),
		Rise: 2, Fall: 3,
	}
	if check == "http" {
		health.Check = &weirv1.HealthCheck_Http{Http: &weirv1.HTTPCheck{Path: "/healthz"}}
	}
	request := &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{{
		Name: "shop", Address: "203.0.113.10",
		Endpoints: []*weirv1.Endpoint{{
			Protocol: "TCP", Port: 80, HealthCheck: health,
			Backends: []*weirv1.Backend{{Address: "10.3.1.11", Port: 8080, Host: "host1"}},
		}},
	}}}
	m.poll("the VIP to be applied", func() string {
		if _, err := m.ApplyVIPs(m.t.Context(), request); err != nil {
			return err.Error()
		}
		return ""
	}, "")
}

func (m *testManager) remove() {
	m.t.Helper()
	if _, err := m.DeleteVIP(m.t.Context(), &weirv1.DeleteVIPRequest{Name: "shop"}); err != nil {
		m.t.Fatal(err)
	}
}

// await polls until the manager says this of the backend's health.
func (m *testManager) await(want string) {
	m.t.Helper()
	m.poll("health", func() string {
		got, err := m.GetVIP(m.t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
		if err != nil {
			return err.Error()
		}
		status := got.GetVip().GetEndpoints()[0].GetBackends()[0].GetStatus()
		return strings.TrimSuffix(status.GetHealth()+": "+status.GetReason(), ": ")
	}, want)
}

// awaitWarning polls until that is the only warning of the host.
func (m *testManager) awaitWarning(want string) {
	m.t.Helper()
	m.poll("warnings", func() string {
		got, err := m.GetNode(m.t.Context(), &weirv1.GetNodeRequest{Name: "host1"})
		if err != nil {
			return err.Error()
		}
		return strings.Join(got.GetNode().GetStatus().GetHost().GetWarnings(), "; ")
	}, want)
}

func (m *testManager) poll(what string, ask func() string, want string) {
	m.t.Helper()
	got := ask()
	for deadline := time.Now().Add(20 * time.Second); got != want && time.Now().Before(deadline); got = ask() {
		time.Sleep(20 * time.Millisecond)
	}
	if got != want {
		m.t.Fatalf("waited for %s %q, last was %q", what, want, got)
	}
}
