package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

const (
	client, attacker = "client1", "client2"
	router           = string(netlab.Router)

	frameBytes = 14 + 20 + 24 // of a SYN
	surplus    = 1.5          // of SYNs that come, to all that muxes take
)

// The VIP of the SYNs and that of the connections.
var floodVIP, openVIP = netip.MustParseAddr("203.0.113.90"), netip.MustParseAddr("203.0.113.91")

type world struct {
	how options
	lab *netlab.Lab
}

func muxName(n int) string { return fmt.Sprintf("mux%d", n) }

func newWorld(ctx context.Context, how options) (w *world, err error) {
	w = &world{how: how}
	var later []string
	for n := 2; n <= how.muxes; n++ {
		later = append(later, muxName(n))
	}
	w.lab, err = benchlab.Up(ctx, how.bin, netlab.Config{
		Plan: netlab.Plan{Name: "bscale", Clients: 2, Muxes: how.muxes, Hosts: 2, Workloads: 2}, Later: later,
	})
	if err != nil {
		return nil, err
	}
	if err := w.prepare(ctx); err != nil {
		return nil, errors.Join(err, w.lab.Down())
	}
	return w, nil
}

func (w *world) prepare(ctx context.Context) error {
	for n := 1; n <= w.how.muxes; n++ {
		if err := w.bound(muxName(n)); err != nil {
			return err
		}
	}
	if _, err := w.lab.Run(router, "ip", "route", "replace", "blackhole", flood.Sources4.String()); err != nil {
		return err // what answers SYNs
	}
	var b strings.Builder
	for i, vip := range []netip.Addr{floodVIP, openVIP} {
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: scale-%d}\nspec:\n  address: '%s'\n  endpoints:\n"+
			"  - protocol: TCP\n    port: 80\n    synCookies: never\n    multipath: auto\n    backends:\n", i+1, vip)
		for _, n := range w.lab.Of(netlab.Workload) {
			fmt.Fprintf(&b, "    - {host: %s, address: '%s', port: %d}\n", n.Host, n.IPv4, netlab.EchoPort)
		}
	}
	file := filepath.Join(w.lab.Dir(), "bench.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		return err
	}
	if out, err := w.lab.Weir("apply", "-f", file, "--wait"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return errors.Join(
		w.lab.WaitHealthy(ctx, patience), w.lab.WaitRouted(ctx, patience, floodVIP, 1), w.lab.WaitRouted(ctx, patience, openVIP, 1))
}

// bound has the router send a mux so many SYNs of the flood a second, and all else at once.
func (w *world) bound(mux string) error {
	bits := fmt.Sprintf("%dbit", 8*frameBytes*w.how.rate)
	for _, command := range []string{
		"qdisc add dev " + mux + " root handle 1: htb default 2",
		"class add dev " + mux + " parent 1: classid 1:1 htb rate " + bits + " burst 4k cburst 4k",
		"class add dev " + mux + " parent 1: classid 1:2 htb rate 1gbit",
		"filter add dev " + mux + " parent 1: protocol ip u32 match ip dst " + floodVIP.String() + "/32 flowid 1:1",
	} {
		if _, err := w.lab.Run(router, "tc", strings.Fields(command)...); err != nil {
			return err
		}
	}
	return nil
}

// forwarded counts the SYNs that a mux's program has sent to hosts; 0: the mux has not begun.
func (w *world) forwarded(n int) (sum uint64, err error) {
	verdicts, err := ebpf.LoadPinnedMap(filepath.Join(w.lab.PinPath(muxName(n)), "live", "verdicts"), nil)
	if err != nil {
		return 0, fmt.Errorf("read what %s forwards: %w", muxName(n), err)
	}
	defer verdicts.Close()
	var each []struct{ Packets, Bytes uint64 } // of each CPU
	if err := verdicts.Lookup(uint32(bpf.MuxVerdictVERDICT_FORWARD_SYN), &each); err != nil {
		return 0, fmt.Errorf("read what %s forwards: %w", muxName(n), err)
	}
	for _, c := range each {
		sum += c.Packets
	}
	return sum, nil
}
