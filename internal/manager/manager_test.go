package manager

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// childEnv makes the test binary be a manager, for the tests that kill one: its value is the data
// directory and the address to listen on, separated by a comma.
const childEnv = "WEIR_TEST_MANAGER"

func TestMain(m *testing.M) {
	if value, child := os.LookupEnv(childEnv); child {
		os.Exit(runChild(value))
	}
	code := m.Run()
	// Connections between members of the embedded etcd end some seconds after it.
	leak := goleak.Find()
	for deadline := time.Now().Add(20 * time.Second); leak != nil && time.Now().Before(deadline); leak = goleak.Find() {
		time.Sleep(100 * time.Millisecond)
	}
	if leak != nil && code == 0 {
		fmt.Fprintln(os.Stderr, leak)
		code = 1
	}
	os.Exit(code)
}

// logger is a test's. Errors are told twice: where the embedded etcd ends the process, what a test has written is lost.
func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewMultiHandler(
		slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}),
		slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}),
	))
}

// start runs a manager, changed before it runs, until the test ends or stop is called, and returns its URL.
func start(t *testing.T, cfg Config, change ...func(*Manager)) (url string, stop func()) {
	t.Helper()
	if cfg.DataDir == "" {
		cfg.DataDir = t.TempDir()
	}
	cfg.Listen, cfg.Version, cfg.Log, cfg.Insecure = "127.0.0.1:0", "test", cmp.Or(cfg.Log, logger(t)), true
	m, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(m)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil && !strings.Contains(err.Error(), "taken out of the cluster") {
				t.Error(err)
			}
		case <-time.After(15 * time.Second):
			t.Error("the manager does not stop")
		}
		m.Close()
	}
	t.Cleanup(stop)
	return "http://" + m.Address().String(), stop
}

// shop is a VIP with two backends on two hosts.
func shop() *weirv1.VIP {
	two := uint32(2)
	return &weirv1.VIP{
		Name: "shop", Tenant: "acme", Address: "203.0.113.10",
		Endpoints: []*weirv1.Endpoint{{
			Protocol: "TCP", Port: 80, HealthCheck: &weirv1.HealthCheck{Check: &weirv1.HealthCheck_Tcp{}},
			Backends: []*weirv1.Backend{
				{Address: "10.3.1.11", Port: 8080, Host: "host1"},
				{Address: "10.3.2.11", Port: 8080, Host: "10.2.2.2", Weight: &two},
			},
		}},
	}
}

func TestWhatNewRefuses(t *testing.T) {
	url, _ := start(t, Config{})
	taken := strings.TrimPrefix(url, "http://")
	for _, c := range []struct{ listen, want string }{
		{taken, "listen on " + taken + ": another program does: stop it, or choose another address with --listen"},
		{"203.0.113.99:7400", "choose another address with --listen"},
	} {
		_, err := New(t.Context(), Config{Listen: c.listen, DataDir: t.TempDir(), Log: logger(t), Insecure: true})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with %q", err, c.want)
		}
	}
}
