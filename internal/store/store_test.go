package store

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlb/weir/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens and runs the store in dir until the test ends or close is called.
func open(t *testing.T, cfg Config) (s *Store, closeStore func()) {
	t.Helper()
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	closed := false
	closeStore = func() {
		if closed {
			return
		}
		closed = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.Close()
	}
	t.Cleanup(closeStore)
	return s, closeStore
}

func vip(name, address string) model.VIP {
	return model.VIP{Name: name, Tenant: "default", Address: netip.MustParseAddr(address), Endpoints: []model.Endpoint{
		{Protocol: model.TCP, Port: 80, Backends: []model.Backend{
			{Address: netip.MustParseAddr("10.3.1.11"), Port: 8080, Host: "host1", Weight: 1},
		}, HealthCheck: &model.HealthCheck{Type: model.CheckTCP, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1}},
	}}
}

func TestSmoke(t *testing.T) {
	s, _ := open(t, Config{DataDir: t.TempDir()})
	start := time.Now()
	g, err := s.Update(t.Context(), func(*State) (Change, error) {
		return Change{VIPs: []model.VIP{vip("a", "203.0.113.1")}}, nil
	})
	t.Log(g, err, time.Since(start), s.State().VIPs)
}
