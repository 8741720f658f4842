package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/hardware/xdp/bpf"
	"github.com/weirlb/weir/internal/lab/clos"
)

// measureStale removes the VIP's entry from the switch's table, behind the daemon's back, until it is back.
func (w *world) measureStale(ctx context.Context) error {
	const name = "core-1"
	if err := w.Place(ctx, name); err != nil {
		return err
	}
	table, err := w.table(name, bpf.SwitchMapHosts)
	if err != nil {
		return err
	}
	defer table.Close()
	key := bpf.SwitchAddress{Words: abi.Words(w.VIPs[0].Address)}
	longest := 0.0
	for range w.how.removals {
		if err := table.Delete(key); err != nil {
			return fmt.Errorf("remove the entry: %w", err)
		}
		began := time.Now()
		for {
			var host bpf.SwitchHost
			err := table.Lookup(key, &host)
			if err == nil {
				break
			}
			if !errors.Is(err, ebpf.ErrKeyNotExist) || ctx.Err() != nil || time.Since(began) > time.Minute {
				return fmt.Errorf("wait until the entry is back: %w", errors.Join(err, ctx.Err()))
			}
			time.Sleep(5 * time.Millisecond)
		}
		took := time.Since(began).Seconds()
		w.say("an entry removed by hand is back after %.2f s", took)
		longest = math.Max(longest, took)
		time.Sleep(time.Duration(1000+w.how.seed*7%13*300) * time.Millisecond) // not at one phase of the audit
	}
	w.add("stale_entry_noticed_s", longest)
	return nil
}

// table opens one of a switch's program.
func (w *world) table(name, table string) (*ebpf.Map, error) {
	ns, err := w.NS(name)
	if err != nil {
		return nil, err
	}
	ports, err := clos.Ports(ns)
	if err != nil {
		return nil, err
	}
	link, err := ns.Netlink().LinkByName(ports[0])
	if err != nil {
		return nil, err
	}
	return tableOf(link, table)
}

func tableOf(link netlink.Link, name string) (*ebpf.Map, error) {
	xdp := link.Attrs().Xdp
	if xdp == nil || !xdp.Attached {
		return nil, fmt.Errorf("%s has no program", link.Attrs().Name)
	}
	program, err := ebpf.NewProgramFromID(ebpf.ProgramID(xdp.ProgId))
	if err != nil {
		return nil, err
	}
	defer program.Close()
	info, err := program.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		table, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, err
		}
		if about, err := table.Info(); err == nil && about.Name == name {
			return table, nil
		}
		_ = table.Close()
	}
	return nil, fmt.Errorf("the program has no table %s", name)
}
