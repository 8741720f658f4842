// Package teststore has a store that runs, and may be written, for as long as a test does.
package teststore

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/cluster"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/store"
)

// Open opens a store and runs it until the test ends; without endpoints of an external etcd it is embedded.
func Open(t testing.TB, endpoints ...string) *store.Store {
	t.Helper()
	cfg := etcd.Config{Endpoints: endpoints, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if len(endpoints) == 0 {
		cfg.DataDir = t.TempDir()
	}
	c, err := cluster.Open(t.Context(), cluster.Config{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if epoch, _ := c.Store.Election.Epoch(); epoch != 0 {
			return c.Store
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody leads")
		}
	}
}
