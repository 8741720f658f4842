package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/hardware/xdp/bpf"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/fabriclab"
)

// moveBound is how long a move may take.
const moveBound = 30 * time.Second

// move is what a VIP's way to another switch took, from the start of the command weir apply: until the switch has the entry,
// until the border has the route, and until the switch has served a ping.
type move struct {
	entry, route, packet, whole time.Duration
	pings
}

// measureMigration moves VIPs one by one from one switch to another, each under pings.
func (w *world) measureMigration(ctx context.Context) error {
	const from, to = "core-1", "core-2"
	if err := w.Place(ctx, from); err != nil {
		return err
	}
	var whole, entry, route, packet []float64
	lost, sent := 0, 0
	parts := 0.0
	for i := range w.VIPs {
		m, err := w.move(ctx, &w.VIPs[i], to)
		if err != nil {
			return err
		}
		lost, sent = lost+m.lost, sent+m.sent
		whole, entry, route, packet = append(whole, ms(m.whole)), append(entry, ms(m.entry)), append(route, ms(m.route)), append(packet, ms(m.packet))
		parts += float64(m.entry+m.route+m.packet) / float64(m.whole) / float64(len(w.VIPs))
	}
	w.add("migration_lost", float64(lost))
	w.add("migration_pings", float64(sent))
	w.add("migration_ms_p50", quantile(whole, 0.5))
	w.add("migration_ms_p99", quantile(whole, 0.99))
	w.add("migration_parts_to_whole", parts)
	w.add("migration_entry_ms_p50", quantile(entry, 0.5))
	w.add("migration_route_ms_p50", quantile(route, 0.5))
	w.add("migration_packet_ms_p50", quantile(packet, 0.5))
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (w *world) move(ctx context.Context, vip *fabriclab.VIP, to string) (m move, err error) {
	watch, err := w.watch(vip.Address, to)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, watch.table.Close(), watch.counts.Close()) }()
	ns, err := w.NS("client1")
	if err != nil {
		return m, err
	}
	p, err := startPinger(ns, interval, vip.Address)
	if err != nil {
		return m, err
	}
	vip.Switches = []string{to}
	file := filepath.Join(w.Dir(), "move.yaml")
	if err := os.WriteFile(file, []byte(w.Manifest(*vip)), 0o600); err != nil {
		return m, err
	}
	done := make(chan error, 1)
	began := time.Now()
	go func() {
		out, err := w.Weir("apply", "-f", file)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		done <- err
	}()
	at := began
	for _, part := range []struct {
		took *time.Duration
		done func() (bool, error)
	}{{&m.entry, watch.hasEntry}, {&m.route, watch.isRouted}, {&m.packet, watch.hasServed}} {
		if err := until(ctx, part.done); err != nil {
			return m, fmt.Errorf("move %s: %w", vip.Name, err)
		}
		now := time.Now()
		*part.took, at = now.Sub(at), now
	}
	m.whole = time.Since(began)
	if err := errors.Join(<-done, w.WaitPlaced(ctx)); err != nil {
		return m, err
	}
	all, err := p.end()
	if err != nil {
		return m, err
	}
	m.pings = all[0]
	return m, nil
}

// watch is where a VIP's way to a switch can be seen: in the switch's tables, and in the border's routes.
type watch struct {
	vip           netip.Addr
	host          bpf.SwitchHost
	table, counts *ebpf.Map
	border        *netlink.Handle
	gateway       netip.Addr
}

func (w *world) watch(vip netip.Addr, to string) (*watch, error) {
	border, err := w.NS(string(netlab.Router))
	if err != nil {
		return nil, err
	}
	seen := &watch{vip: vip, border: border.Netlink()}
	seen.gateway, _ = w.Address(to, string(netlab.Router))
	if seen.table, err = w.table(to, bpf.SwitchMapHosts); err != nil {
		return nil, err
	}
	if seen.counts, err = w.table(to, bpf.SwitchMapHostCounts); err != nil {
		return nil, errors.Join(err, seen.table.Close())
	}
	return seen, nil
}

func (w *watch) hasEntry() (bool, error) {
	err := w.table.Lookup(bpf.SwitchAddress{Words: abi.Words(w.vip)}, &w.host)
	return err == nil, ignore(err, ebpf.ErrKeyNotExist)
}

// hasServed tells whether the switch has counted a packet of the VIP.
func (w *watch) hasServed() (bool, error) {
	var counters []bpf.SwitchCounter
	err := w.counts.Lookup(w.host.Id, &counters)
	return slices.ContainsFunc(counters, func(c bpf.SwitchCounter) bool { return c.Packets > 0 }), err
}

// isRouted tells whether the border sends to the VIP alone by the switch.
func (w *watch) isRouted() (bool, error) {
	dst := &net.IPNet{IP: w.vip.AsSlice(), Mask: net.CIDRMask(w.vip.BitLen(), w.vip.BitLen())}
	routes, err := w.border.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: dst}, netlink.RT_FILTER_DST)
	gateway := net.IP(w.gateway.AsSlice())
	return slices.ContainsFunc(routes, func(r netlink.Route) bool {
		return r.Gw.Equal(gateway) || slices.ContainsFunc(r.MultiPath, func(hop *netlink.NexthopInfo) bool { return hop.Gw.Equal(gateway) })
	}), err
}

func ignore(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

// until asks every half a millisecond.
func until(ctx context.Context, is func() (bool, error)) error {
	for end := time.Now().Add(moveBound); time.Now().Before(end); time.Sleep(time.Millisecond / 2) {
		if yes, err := is(); yes || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return errors.New("it takes too long")
}
