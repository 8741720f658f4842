package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/model"
)

const (
	demoClient = "client1"
	demoVictim = "mux1"

	demoRequests    = 1000
	demoConcurrency = 32

	cutRate    = 100 // requests a second and family while a mux dies
	cutBefore  = 2 * time.Second
	cutTotal   = 6 * time.Second
	cutTimeout = 500 * time.Millisecond
	cutRetries = 10

	healthyTime = 30 * time.Second
)

var demoPlan = netlab.Plan{Name: "demo", Clients: 1, Muxes: 2, Hosts: 3, Workloads: 2}

func demoCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "demo", Short: "Build a lab, balance real traffic in it, cut a mux's power, clean up", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bin, err := binFolder()
			if err != nil {
				return err
			}
			if err := netlab.Requirements(bin); err != nil {
				return err
			}
			vips, err := readManifest(file)
			if err != nil {
				return err
			}
			d := &demo{out: cmd.OutOrStdout(), file: file, vips: vips}
			return d.run(cmd.Context(), bin)
		},
	}
	cmd.AddCommand(bypassCommand(), switchesCommand(), multipathCommand())
	cmd.Flags().StringVar(&file, "manifest", "examples/shop.yaml", "file with the VIPs")
	return cmd
}

// readManifest reads the VIPs that the demo calls: each by its first endpoint, over HTTP.
func readManifest(file string) ([]model.VIP, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w: run the demo in the repository's folder or name one with --manifest", err)
	}
	resources, err := manifest.Parse(file, data)
	if err != nil {
		return nil, err
	}
	var vips []model.VIP
	for _, r := range resources {
		if m, ok := r.Message.(*weirv1.VIP); ok {
			vip, err := compile.VIP(m)
			if err != nil {
				return nil, fmt.Errorf("read the manifest: %s: %w", file, err)
			}
			vips = append(vips, vip)
		}
	}
	if len(vips) == 0 {
		return nil, fmt.Errorf("read the manifest: %s holds no VIP", file)
	}
	return vips, nil
}

// demo is one run of the demo.
type demo struct {
	out  io.Writer
	file string // manifest
	vips []model.VIP
	lab  *netlab.Lab
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

func (d *demo) run(ctx context.Context, bin string) (err error) {
	d.say("\nA datacenter of network namespaces, with a real FRR as its router:\n\n%s", demoPlan.Picture())
	if err := netlab.Down(demoPlan.Name); err != nil { // what an earlier run left
		return err
	}
	began := time.Now()
	d.lab, err = netlab.Up(ctx, netlab.Config{Plan: demoPlan, Bin: bin, Tied: true})
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() {
		if down := d.lab.Down(); down != nil {
			err = errors.Join(err, down)
			return
		}
		d.say("\nCleaned up: nothing of the lab is left.")
	}()
	d.say("It is up after %s: muxes and hosts joined the manager with tokens, over TLS; BGP and BFD sessions of all muxes stand.",
		seconds(time.Since(began)))
	for _, step := range []func(context.Context) error{d.apply, d.balance, d.cut} {
		if err := step(ctx); err != nil {
			return interrupted(ctx, err)
		}
	}
	return nil
}

// interrupted tells of Ctrl-C instead of what failed because of it.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

func (d *demo) apply(ctx context.Context) error {
	d.say("\n$ weir apply -f %s --wait", d.file)
	out, err := d.lab.Weir("apply", "-f", d.file, "--wait")
	if err != nil {
		return err
	}
	d.say("%s", indent(out))
	began := time.Now()
	if err := d.lab.WaitHealthy(ctx, healthyTime); err != nil {
		return err
	}
	for _, vip := range d.vips {
		if err := d.lab.WaitRouted(ctx, healthyTime, vip.Address, demoPlan.Muxes); err != nil {
			return err
		}
	}
	d.say("  all backends passed their health checks after %s, and the router knows the VIPs by every mux", seconds(time.Since(began)))
	return nil
}

// balance makes the first run of requests and tells where they went.
func (d *demo) balance(ctx context.Context) error {
	replies, err := d.captureReplies()
	if err != nil {
		return err
	}
	defer replies.close()
	before, err := d.forwarded()
	if err != nil {
		return err
	}

	results := make([]load.Result, len(d.vips))
	for i, vip := range d.vips {
		config := load.Config{URL: url(vip), Requests: demoRequests, Concurrency: demoConcurrency}
		if results[i], err = netload.RunLoad(ctx, d.lab, demoClient, config); err != nil {
			return err
		}
		r := results[i]
		d.say("\n%d requests from %s to %s, each on a connection of its own:", r.Requests, demoClient, config.URL)
		d.say("  %d answered, %d failed, in %s", r.Requests-r.Failed, r.Failed, seconds(r.Took))
	}
	if err := d.tellShares(results); err != nil {
		return err
	}
	d.tellClients(results)

	after, err := d.forwarded()
	if err != nil {
		return err
	}
	seen, err := replies.count()
	if err != nil {
		return err
	}
	d.tellMuxes(before, after, seen)
	return failures(results)
}

// failures is an error if a request failed or its answer came from nowhere known.
func failures(results []load.Result) error {
	for _, r := range results {
		if r.Failed > 0 {
			return fmt.Errorf("%d of %d requests failed, the first with: %s", r.Failed, r.Requests, r.Failures[0].Error)
		}
	}
	return nil
}

// cut makes the second run, during which a mux loses its power.
func (d *demo) cut(ctx context.Context) error {
	d.say("\nNow %d requests a second; after %s, %s loses its power. Its link stays up, its packets vanish.",
		cutRate*len(d.vips), seconds(cutBefore), demoVictim)
	group, ctx := errgroup.WithContext(ctx)
	results := make([]load.Result, len(d.vips))
	for i, vip := range d.vips {
		run, err := netload.StartLoad(ctx, d.lab, demoClient, load.Config{
			URL: url(vip), Rate: cutRate, Duration: cutTotal, Timeout: cutTimeout, Attempts: cutRetries,
		})
		if err != nil {
			return err
		}
		group.Go(func() (err error) {
			results[i], err = run.Wait()
			return err
		})
	}
	var cutAt time.Time
	group.Go(func() error {
		select {
		case <-time.After(cutBefore):
		case <-ctx.Done():
			return ctx.Err()
		}
		cutAt = time.Now()
		return d.lab.CutPower(demoVictim)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	d.tellCut(results, cutAt)
	return failures(results)
}

func url(vip model.VIP) string {
	address := netip.AddrPortFrom(vip.Address, vip.Endpoints[0].Port).String()
	return "http://" + strings.TrimSuffix(address, ":80") + "/"
}
