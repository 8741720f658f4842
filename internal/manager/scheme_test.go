package manager

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// Whoever calls a manager without TLS that has it, or with TLS one that has none, is told so and what to do.
func TestTheWrongScheme(t *testing.T) {
	withTLS, admin, _ := secure(t, Config{Name: "m1"})
	without, err := New(t.Context(), Config{Name: "m2", Listen: "127.0.0.1:0", DataDir: t.TempDir(), Insecure: true, Version: "test", Log: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	runManager(t, without)
	status := func(access rpc.Access) error {
		client, err := access.Client()
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		_, err = client.GetStatus(t.Context(), &weirv1.GetStatusRequest{})
		return err
	}
	refusedWith(t, "no TLS to a manager that has it", status(rpc.Access{Managers: "http://" + withTLS.Address().String()}),
		"speaks TLS only: write https://"+withTLS.Address().String())
	refusedWith(t, "TLS to a manager that has none",
		status(rpc.Access{Managers: "https://" + without.Address().String(), CA: withTLS.identity.Authority().Certificate}),
		"speaks no TLS, it runs with --insecure")

	// A node that is to join goes on trying: the manager may be the next to be started again.
	made, err := admin.CreateToken(t.Context(), &weirv1.CreateTokenRequest{Role: "mux"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(made.GetText()), 0o600); err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 16)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	m := &rpc.Membership{
		Managers: without.Address().String(), Kind: trust.Mux, Name: "mux1", DataDir: t.TempDir(), TokenFile: file, CAHash: made.GetCaHash(),
		Log: slog.New(slog.NewTextHandler(lines(told), nil)),
	}
	go func() { ended <- m.Obtain(ctx) }()
	select {
	case line := <-told:
		if !strings.Contains(line, "speaks no TLS") {
			t.Errorf("a node was told %s", line)
		}
	case <-time.After(time.Minute):
		t.Error("a node was told nothing")
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a node joined a manager without TLS")
	}
}

// lines is a log whose lines are read from a channel.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}
