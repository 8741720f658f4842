package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/testkit/benchlab"
	"github.com/weirlb/weir/internal/wake"
)

// device follows a manager as weir-switch does, and has tables for all that it is told.
type device struct {
	name, address string
	client        *rpc.Client
	runs          atomic.Uint64 // generation that the manager knows it runs
	snapshots     atomic.Uint64
	changed       wake.Signal

	mu        sync.Mutex
	entries   map[string]bool // by VIP, whether it is announced
	announced int
	told      uint64
	cut       context.CancelFunc // ends the stream
}

func newDevice(i int, client *rpc.Client) *device {
	return &device{
		name: switchName(i), address: fmt.Sprintf("10.3.%d.%d", i/250, i%250+1), client: client,
		changed: wake.New(), entries: map[string]bool{},
	}
}

func switchName(i int) string { return fmt.Sprintf("switch%d", i+1) }

// run follows and reports until ctx ends.
func (d *device) run(ctx context.Context) {
	var reporting sync.WaitGroup
	defer reporting.Wait()
	reporting.Go(func() { d.reports(ctx) })
	rpc.Follow(ctx, quiet, "switch", func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.SyncSwitchResponse], error) { //nolint:errcheck // it ends with ctx
		d.mu.Lock()
		ctx, d.cut = context.WithCancel(ctx)
		d.mu.Unlock()
		return d.client.SyncSwitch(ctx, &weirv1.SyncSwitchRequest{Name: d.name, Addresses: []string{d.address}, Version: "bench"})
	}, func(p *weirv1.SyncSwitchResponse) error {
		d.apply(p)
		return nil
	})
}

func (d *device) apply(p *weirv1.SyncSwitchResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.GetSnapshot() {
		d.entries, d.announced = map[string]bool{}, 0
	}
	forget := func(vip string) {
		if d.entries[vip] {
			d.announced--
		}
		delete(d.entries, vip)
	}
	for _, vip := range p.GetRemoved() {
		forget(vip)
	}
	for _, e := range p.GetEntries() {
		forget(e.GetVip())
		if d.entries[e.GetVip()] = e.GetAnnounce(); e.GetAnnounce() {
			d.announced++
		}
	}
	d.told = p.GetGeneration()
	if p.GetSnapshot() {
		d.snapshots.Add(1)
	}
	d.changed.Set()
}

// reports tells what the switch has: at once after a change, and as often as weir-switch.
func (d *device) reports(ctx context.Context) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.changed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		d.mu.Lock()
		told, entries, announced := d.told, uint32(len(d.entries)), uint32(d.announced)
		d.mu.Unlock()
		if told == 0 {
			continue
		}
		_, err := d.client.ReportSwitch(ctx, &weirv1.ReportSwitchRequest{Name: d.name, Generation: told, Status: &weirv1.SwitchStatus{
			Driver: "bench", Members: 1024, Programmed: entries, Announced: announced,
			Hosts:   &weirv1.SwitchTable{Size: 16384, Used: entries},
			Ecmp:    &weirv1.SwitchTable{Size: 4096, Used: entries * benchlab.BackendsPerVIP},
			Tunnels: &weirv1.SwitchTable{Size: 512, Used: min(entries*benchlab.BackendsPerVIP, 512)},
			Peers:   []*weirv1.BGPPeer{{Address: "192.0.2.1", As: 65001, State: "established", Routes: announced}},
		}})
		if err == nil {
			d.runs.Store(told)
		}
	}
}

// holds says how many VIPs the switch announces.
func (d *device) holds() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.announced
}

// leave ends the stream, so that another one begins.
func (d *device) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut()
}
