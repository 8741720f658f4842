package main

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// mux follows a manager as weir-mux does, and forgets what it is told.
type mux struct {
	name, address string
	client        *rpc.Client

	due  chan struct{} // holds at most one: there is something to acknowledge
	tell rpc.Acknowledger

	mu        sync.Mutex
	anew      bool // the stream is another one: it begins with a report
	runsNow   uint64
	hears     map[string]uint64 // as told, of what is not acknowledged yet
	acked     uint64
	told      map[string]uint64 // by VIP's address, the generation that told of it last and is acknowledged
	changed   chan struct{}     // closed when acked changes
	waiting   []waiter          // for acked; all others are not woken
	snapshots []time.Duration   // from opening the stream to having the snapshot
	opened    time.Time
	cut       context.CancelFunc // ends the stream
}

func newMux(name, address string, client *rpc.Client) *mux {
	return &mux{
		name: name, address: address, client: client, due: make(chan struct{}, 1), tell: rpc.Acknowledger{Name: name, Open: client.AcknowledgeMux},
		hears: map[string]uint64{}, told: map[string]uint64{}, changed: make(chan struct{}),
	}
}

func (m *mux) run(ctx context.Context) {
	var reporting sync.WaitGroup
	defer reporting.Wait()
	reporting.Go(func() { m.report(ctx) })
	rpc.Follow(ctx, quiet, "tables", func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.SyncMuxResponse], error) { //nolint:errcheck // it ends with ctx
		m.mu.Lock()
		m.opened = time.Now()
		ctx, m.cut = context.WithCancel(ctx)
		joins := m.runsNow == 0
		m.mu.Unlock()
		return m.client.SyncMux(ctx, &weirv1.SyncMuxRequest{Name: m.name, Addresses: []string{m.address}, Version: "bench", Joins: joins, SnatDeltas: true})
	}, func(p *weirv1.SyncMuxResponse) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if p.GetSnapshot() {
			m.snapshots = append(m.snapshots, time.Since(m.opened))
			m.anew = true
		}
		m.runsNow = p.GetGeneration()
		if !p.GetSnapshot() {
			for _, e := range p.GetEndpoints() {
				m.hears[e.GetEndpoint().GetVip()] = p.GetGeneration()
			}
		}
		select {
		case m.due <- struct{}{}:
		default:
		}
		return nil
	})
}

// reportEvery is how often a mux reports, beside what it acknowledges.
const reportEvery = 2 * time.Second

// report acknowledges what comes, until ctx ends: as the mux, one message at a time, and what comes meanwhile with
// the next.
func (m *mux) report(ctx context.Context) {
	defer m.tell.Close()
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		whole := false
		select {
		case <-m.due:
		case <-tick.C:
			whole = true
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		generation := m.runsNow
		if m.anew {
			m.tell.Close()
			m.anew, whole = false, true
		}
		m.mu.Unlock()
		if generation == 0 {
			continue
		}
		err := m.tell.Send(ctx, generation, 0)
		if whole || err != nil {
			_, err = m.client.ReportMux(ctx, &weirv1.ReportMuxRequest{
				Name: m.name, Generation: generation, Status: &weirv1.MuxStatus{XdpMode: "native", Interface: "eth0"},
			})
		}
		if err == nil {
			m.answered(generation)
			continue
		}
		select {
		case m.due <- struct{}{}: // again
		default:
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// answered notes what the mux has acknowledged, and tells who waited for it.
func (m *mux) answered(generation uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acked = generation
	for address, told := range m.hears {
		if told <= generation {
			m.told[address] = told
			delete(m.hears, address)
		}
	}
	close(m.changed)
	m.changed = make(chan struct{})
	m.waiting = slices.DeleteFunc(m.waiting, func(w waiter) bool {
		if w.generation > m.acked {
			return false
		}
		close(w.reached)
		return true
	})
}

// leave ends the stream, so that another one begins.
func (m *mux) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut()
}

func (m *mux) generation() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.acked
}

// waiter waits for a mux to run a generation.
type waiter struct {
	generation uint64
	reached    chan struct{}
}

// runs returns when the mux runs a generation.
func (m *mux) runs(ctx context.Context, generation uint64) error {
	m.mu.Lock()
	if m.acked >= generation {
		m.mu.Unlock()
		return nil
	}
	w := waiter{generation, make(chan struct{})}
	m.waiting = append(m.waiting, w)
	m.mu.Unlock()
	select {
	case <-w.reached:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// await returns when reached says so of the mux.
func (m *mux) await(ctx context.Context, reached func() bool) error {
	for {
		m.mu.Lock()
		done, changed := reached(), m.changed
		m.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// agent follows a manager as weir-agent does, and forgets what it is told.
type agent struct {
	name, address string
	client        *rpc.Client
	generation    atomic.Uint64
	runs          atomic.Uint64      // that the manager knows
	received      atomic.Uint64      // bytes of messages
	counts        bool               // sessions: it has none, so that moves end
	again         chan time.Duration // break the stream, and wait so long
}

func newAgent(name, address string, client *rpc.Client) *agent {
	return &agent{name: name, address: address, client: client, again: make(chan time.Duration, 1)}
}

// run follows after a wait, and reports every few seconds.
func (a *agent) run(ctx context.Context, wait time.Duration) {
	var reports sync.WaitGroup
	defer reports.Wait()
	reports.Go(func() {
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				a.report(ctx) //nolint:errcheck // the next one tells the same
			}
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		stream, stop := context.WithCancel(ctx)
		var broken sync.WaitGroup
		broken.Go(func() {
			select {
			case wait = <-a.again:
				stop()
			case <-stream.Done():
			}
		})
		rpc.Follow(stream, quiet, "tables", func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.SyncHostResponse], error) { //nolint:errcheck // it ends with ctx
			return a.client.SyncHost(ctx, &weirv1.SyncHostRequest{Name: a.name, Addresses: []string{a.address}, Version: "bench", PortBlocks: true, SnatDeltas: true})
		}, func(p *weirv1.SyncHostResponse) error {
			a.received.Add(uint64(proto.Size(p)))
			a.generation.Store(p.GetGeneration())
			err := a.report(ctx)
			if err == nil {
				a.runs.Store(p.GetGeneration())
			}
			return err
		})
		stop()
		broken.Wait()
	}
}

func (a *agent) report(ctx context.Context, health ...*weirv1.BackendHealth) error {
	_, err := a.client.ReportHost(ctx, &weirv1.ReportHostRequest{
		Name: a.name, Generation: a.generation.Load(), Status: &weirv1.HostStatus{Uplink: "eth0"}, Health: health, SessionsCounted: a.counts,
	})
	return err
}
