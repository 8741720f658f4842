// Package benchlab is what benches have in common that measure in a lab of their own, with the real programs.
package benchlab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// Main runs a bench until it ends or is interrupted, and ends the program if it failed.
func Main(name string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench %s: %v\n", name, err)
		os.Exit(1)
	}
}

// Up builds a lab with the programs in a folder. One of its name that is left from before goes first.
func Up(ctx context.Context, bin string, config netlab.Config) (*netlab.Lab, error) {
	if err := netlab.Down(config.Name); err != nil {
		return nil, err
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	config.Bin, config.Tied = bin, true
	return netlab.Up(ctx, config)
}

// announced bounds how long muxes take to announce a VIP.
const announced = time.Minute

// Apply applies what text says, in YAML, and waits until all muxes announce the VIPs.
func Apply(ctx context.Context, lab *netlab.Lab, text string, vips ...netip.Addr) error {
	file := filepath.Join(lab.Dir(), "bench.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if out, err := lab.Weir("apply", "-f", file, "--wait"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, vip := range vips {
		if err := lab.WaitRouted(ctx, announced, vip, len(lab.Of(netlab.Mux))); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Write writes results as JSON.
func Write(path string, results any) error {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
