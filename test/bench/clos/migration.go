package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
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
	table, counts, err := w.entries(to)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, table.Close(), counts.Close()) }()
	ns, err := w.NS("client1")
	if err != nil {
		return m, err
	}
	router, err := w.NS(string(netlab.Router))
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
	key, host := bpf.SwitchAddress{Words: abi.Words(vip.Address)}, bpf.SwitchHost{}
	has := func() (bool, error) {
		err := table.Lookup(key, &host)
		return err == nil, ignore(err, ebpf.ErrKeyNotExist)
	}
	routed := func() (bool, error) { return hasRoute(router.Netlink(), vip.Address, w.link(to)) }
	served := func() (bool, error) {
		var counters []bpf.SwitchCounter
		if err := counts.Lookup(host.Id, &counters); err != nil {
			return false, err
		}
		for _, c := range counters {
			if c.Packets > 0 {
				return true, nil
			}
		}
		return false, nil
	}
	at := began
	for _, part := range []struct {
		took *time.Duration
		done func() (bool, error)
	}{{&m.entry, has}, {&m.route, routed}, {&m.packet, served}} {
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

// link is the address of a core on its link to the border.
func (w *world) link(core string) netip.Addr {
	a, _ := w.Address(core, string(netlab.Router))
	return a
}

// hasRoute tells whether the kernel sends to an address alone by a gateway.
func hasRoute(handle *netlink.Handle, to, via netip.Addr) (bool, error) {
	dst := &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(to.BitLen(), to.BitLen())}
	routes, err := handle.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: dst}, netlink.RT_FILTER_DST)
	if err != nil {
		return false, err
	}
	gateway := net.IP(via.AsSlice())
	for _, r := range routes {
		if r.Gw.Equal(gateway) {
			return true, nil
		}
		for _, hop := range r.MultiPath {
			if hop.Gw.Equal(gateway) {
				return true, nil
			}
		}
	}
	return false, nil
}

// entries opens the table of VIPs of a switch, and that of their counters.
func (w *world) entries(name string) (table, counts *ebpf.Map, err error) {
	if table, err = w.table(name, bpf.SwitchMapHosts); err != nil {
		return nil, nil, err
	}
	if counts, err = w.table(name, bpf.SwitchMapHostCounts); err != nil {
		return nil, nil, errors.Join(err, table.Close())
	}
	return table, counts, nil
}
