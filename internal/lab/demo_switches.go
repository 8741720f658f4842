package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/stream"
)

var switchesPlan = netlab.Plan{Name: "clos", Clients: 1, Muxes: 2, Hosts: 3, Workloads: 2, Fabric: "2x2x2x2"}

const (
	switchesStreams  = 100 // of TCP, and of UDP
	switchesPatience = 20 * time.Second
	// fillVIPs are more than a switch has room for: 4,096 rows of ECMP groups, and six members of unequal shares take 24.
	fillVIPs = 180
)

var switchesVIP = netip.MustParseAddr("203.0.113.10")

func switchesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "switches", Short: "Build a lab with a fabric of switches, and have VIPs move between them and muxes while switches fail",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			bin, err := binFolder()
			if err != nil {
				return err
			}
			if err := netlab.Requirements(bin); err != nil {
				return err
			}
			d := &switchesDemo{demo: demo{out: cmd.OutOrStdout()}}
			return d.run(cmd.Context(), bin)
		},
	}
}

// switchesDemo is one run of the demo of switches.
type switchesDemo struct {
	demo
	at      string // the switch of the VIP; empty: muxes
	drained string
	held    []*netload.Streams
}

func (d *switchesDemo) run(ctx context.Context, bin string) (err error) {
	d.say("\nA Clos fabric of ten switches, each with FRR, by eBGP as in RFC 7938, and weir-switch:\n\n%s", switchesPlan.Picture())
	if err := netlab.Down(switchesPlan.Name); err != nil { // what an earlier run left
		return err
	}
	began := time.Now()
	d.lab, err = netlab.Up(ctx, netlab.Config{Plan: switchesPlan, Bin: bin, Tied: true})
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
	d.say("It is up after %s.", seconds(time.Since(began)))
	for _, step := range []func(context.Context) error{d.serve, d.die, d.move, d.comeBack, d.fill, d.tell} {
		if err := step(ctx); err != nil {
			return interrupted(ctx, err)
		}
	}
	return nil
}

// apply has the VIP where it is to be.
func (d *switchesDemo) apply(ctx context.Context) error {
	var backends strings.Builder
	for _, n := range d.lab.Of(netlab.Workload) {
		weight := 1
		if n.Name == d.drained {
			weight = 0
		}
		fmt.Fprintf(&backends, "    - {host: %s, address: '%s', port: %d, weight: %d}\n", n.Host, n.IPv4, netlab.EchoPort, weight)
	}
	hardware := "{placement: never}"
	if d.at != "" {
		hardware = fmt.Sprintf("{placement: require, switches: [%s]}", d.at)
	}
	return d.manifest(ctx, fmt.Sprintf("apiVersion: weir/v1\nkind: VIP\nmetadata: {name: web}\nspec:\n  address: '%s'\n  hardware: %s\n  endpoints:\n"+
		"  - protocol: TCP\n    port: 80\n    backends:\n%[3]s  - protocol: UDP\n    port: 80\n    backends:\n%[3]s", switchesVIP, hardware, backends.String()))
}

func (d *switchesDemo) manifest(ctx context.Context, text string) error {
	file := filepath.Join(d.lab.Dir(), "demo.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if out, err := d.lab.Weir("apply", "-f", file, "--wait"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return ctx.Err()
}

// place moves the VIP, and waits until it is there.
func (d *switchesDemo) place(ctx context.Context, to string) error {
	from := d.at
	d.at = to
	if err := d.apply(ctx); err != nil {
		return err
	}
	return netlab.Poll(ctx, healthyTime, func() error {
		out, err := d.lab.Weir("placement", "web")
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			fields := strings.Fields(line)
			serves := len(fields) > 3 && fields[3] == "hardware"
			if gone := !serves || from != fields[2]; serves && fields[2] == to && gone {
				return nil
			}
		}
		return fmt.Errorf("the VIP is not at %s: %s", to, out)
	})
}

// serve has a switch serve the VIP, under streams.
func (d *switchesDemo) serve(ctx context.Context) error {
	if err := d.place(ctx, "core-1"); err != nil {
		return err
	}
	if err := d.lab.WaitHealthy(ctx, healthyTime); err != nil {
		return err
	}
	// The router has the route a moment after core-1 announces it.
	err := netlab.Poll(ctx, healthyTime, func() error {
		_, err := d.lab.Run(demoClient, "curl", "--silent", "--fail", "--max-time", "1", "http://"+switchesVIP.String()+"/")
		return err
	})
	if err != nil {
		return fmt.Errorf("reach the VIP: %w", err)
	}
	for _, network := range []stream.Network{stream.TCP, stream.UDP} {
		run, err := netload.StartStreams(ctx, d.lab, demoClient, stream.Config{
			Network: network, Target: netip.AddrPortFrom(switchesVIP, 80), Streams: switchesStreams, Interval: 200 * time.Millisecond, Patience: switchesPatience,
		})
		if err != nil {
			return err
		}
		if err := run.WaitOpened(ctx, healthyTime); err != nil {
			return err
		}
		d.held = append(d.held, run)
	}
	d.say("\ncore-1 holds the VIP %s in its tables. %s holds %d connections and as many flows of UDP.", switchesVIP, demoClient, switchesStreams)
	return d.tellMuxes(ctx, 2*time.Second)
}

// tellMuxes tells what muxes forward within a while.
func (d *switchesDemo) tellMuxes(ctx context.Context, during time.Duration) error {
	before, err := d.forwarded()
	if err != nil {
		return err
	}
	select {
	case <-time.After(during):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := d.forwarded()
	if err != nil {
		return err
	}
	sum := uint64(0)
	for name, count := range after {
		sum += count - before[name]
	}
	d.say("  in %s the muxes forwarded %d packets", seconds(during), sum)
	return nil
}

// die has the switch fail.
func (d *switchesDemo) die(ctx context.Context) error {
	if err := d.lab.Crash(d.at); err != nil {
		return err
	}
	d.say("\n%s dies. Its neighbors have lost its route, and the muxes' aggregate takes over:", d.at)
	return d.tellMuxes(ctx, 2*time.Second)
}

// move has another switch serve the VIP.
func (d *switchesDemo) move(ctx context.Context) error {
	began := time.Now()
	if err := d.place(ctx, "agg-1-2"); err != nil {
		return err
	}
	d.say("\nThe VIP moves to agg-1-2, which serves it after %s:", seconds(time.Since(began)))
	return d.tellMuxes(ctx, 2*time.Second)
}

// comeBack has the switch that died come back with tables that are not true any more.
func (d *switchesDemo) comeBack(ctx context.Context) error {
	if err := d.lab.Revive("core-1"); err != nil {
		return err
	}
	err := netlab.Poll(ctx, healthyTime, func() error {
		out, err := d.lab.Run("core-1", d.lab.Find("weir-switch"), "status", "--driver", "xdp")
		if err == nil && strings.Contains(out, switchesVIP.String()) {
			err = errors.New("core-1 still has the entry")
		}
		return err
	})
	if err != nil {
		return err
	}
	d.say("\ncore-1 is back with the tables of when it died. It served what it was last told, until it heard of a manager; the entry is gone:")
	return d.tellMuxes(ctx, time.Second)
}

// fill has a switch told to hold more than it can.
func (d *switchesDemo) fill(ctx context.Context) error {
	const name = "tor-2-2"
	var all strings.Builder
	for i := range fillVIPs {
		fmt.Fprintf(&all, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: fill%d}\nspec:\n  address: 203.0.113.%d\n"+
			"  hardware: {placement: require, switches: [%s]}\n  endpoints:\n  - protocol: TCP\n    port: 80\n    backends:\n", i, 20+i, name)
		for j, n := range d.lab.Of(netlab.Workload) {
			fmt.Fprintf(&all, "    - {host: %s, address: '%s', port: %d, weight: %d}\n", n.Host, n.IPv4, netlab.EchoPort, []int{1, 2, 3, 5, 7, 11}[j])
		}
	}
	began := time.Now()
	if err := d.manifest(ctx, all.String()); err != nil {
		return err
	}
	var served, refused int
	var why string
	err := netlab.Poll(ctx, healthyTime, func() error {
		out, err := d.lab.Weir("placement")
		if err != nil {
			return err
		}
		served, refused = 0, 0
		for line := range strings.Lines(out) {
			fields := strings.Fields(line)
			switch {
			case len(fields) < 4 || fields[2] != name:
			case fields[3] == "hardware":
				served++
			case fields[3] == "evicted":
				refused, why = refused+1, strings.Join(fields[6:], " ") // behind "3s ago"
			}
		}
		if served+refused < fillVIPs {
			return fmt.Errorf("%d VIPs are on their way to %s", fillVIPs-served-refused, name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.say("\n%d VIPs more are told to be in %s, which takes %s:", fillVIPs, name, seconds(time.Since(began)))
	d.say("  %d are; %d were refused, and muxes serve them: %s", served, refused, why)
	return nil
}

// tell ends the streams.
func (d *switchesDemo) tell(context.Context) error {
	broken := 0
	d.say("\nWhat %s noticed of all that:", demoClient)
	for i, run := range d.held {
		r, err := run.Stop()
		if err != nil {
			return err
		}
		d.say("  %s: %d of %d broken; %d answers, the slowest after %s; %d datagrams lost",
			[]string{"TCP", "UDP"}[i], r.Broken, r.Opened, r.Blocks, seconds(r.Slowest), r.Lost)
		broken += r.Broken + switchesStreams - r.Opened
		for _, b := range slices.Concat(r.Breaks)[:min(3, len(r.Breaks))] {
			d.say("    %s to %s: %s", b.Local, b.Backend, b.Reason)
		}
	}
	if broken > 0 {
		return fmt.Errorf("%d connections and flows broke", broken)
	}
	return nil
}
