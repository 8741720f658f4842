package snat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"pgregory.net/rapid"

	weirv1 "github.com/weirlb/weir/api/v1"
	agentsnat "github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/wire"
)

// historyWorld is one host: its tables, which outlive the agent, the connections in them, and what the manager has noted of
// it and of other hosts.
type historyWorld struct {
	blockWorld
	t     *rapid.T
	ports *Ports
	begun time.Time // of the world: what the agent is told that it is, plus clock

	workloads map[netip.Addr]bool // that the manager lists
	used      map[model.Range]netip.Addr
	shown     map[model.Range]shown
	back      map[uint32]time.Duration // ranges that are the manager's again, since when
	others    map[uint32]bool          // ranges that other hosts have
	reclaims  []model.Range
	race      bool // connections begin as soon as the use of ranges was read
	lose      bool // the answer to the next call
	writes    int  // workloads that the next write of tables gets to before the agent is killed; -1: all
	killed    bool
	before    wire.HostUpdate      // an older list
	behind    *wire.HostUpdate     // what a manager tells first that is behind
	since     time.Duration        // when the agent heard of nobody else
	anew      bool                 // the agent has started, and heard of no manager that is up to date
	heard     bool                 // or of none at all
	ends      map[model.Range]bool // ranges whose connections may end, for a manager has said so
	fault     string               // the first that was seen, maybe in another goroutine
}

// shown is which workload's tables showed a range last, and until when.
type shown struct {
	workload netip.Addr
	at       time.Duration
}

var historyWorkloads = []netip.Addr{portKey.Address, otherKey.Address, netip.MustParseAddr("10.1.0.4")}

const ownRange = 300 // of the first workload, the next ones follow

func newHistory(t *rapid.T) *historyWorld {
	w := &historyWorld{
		blockWorld: blockWorld{tables: map[netip.Addr]model.HostSNAT{}, version: 3, next: 500, clock: time.Hour},
		t:          t, begun: time.Now(), workloads: map[netip.Addr]bool{}, used: map[model.Range]netip.Addr{}, shown: map[model.Range]shown{},
		back: map[uint32]time.Duration{}, ends: map[model.Range]bool{}, others: map[uint32]bool{}, writes: -1,
	}
	for _, a := range historyWorkloads {
		w.workloads[a] = true
	}
	w.start()
	w.before = w.told()
	w.tell()
	return w
}

func (w *historyWorld) wrong(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
	}
}

// start is an agent that adopts the tables; it has heard nothing yet. Ranges that take no new flow and have none do not show.
func (w *historyWorld) start() {
	w.killed, w.writes, w.anew, w.heard = false, -1, true, false
	var live []model.HostSNAT
	for _, s := range w.tables {
		idle := func(r model.Range) bool { return !w.used[r].IsValid() }
		hidden := func(r model.Range) bool { return slices.Contains(s.Reclaim, r) && idle(r) }
		s.Ranges = slices.DeleteFunc(slices.Clone(s.Ranges), hidden)
		s.Reclaim = slices.DeleteFunc(slices.Clone(s.Reclaim), idle)
		live = append(live, s)
	}
	w.ports = New(Config{
		Datapath: w, Sender: w, Manager: w, MSS: func(bool) int { return 1370 }, Live: live,
	}, "h1", slog.New(slog.DiscardHandler), func([]netip.Addr) {})
	w.ports.now = func() time.Duration { return w.clock }
}

func (w *historyWorld) now() time.Time { return w.begun.Add(w.clock) }

// told is what a manager that is up to date lists.
func (w *historyWorld) told() wire.HostUpdate {
	block, _ := wire.RangesFromProto(w.block)
	all := []model.HostSNAT{{Key: blockKey, Tunnel: portKey.Address, Ranges: block, Reclaim: slices.Clone(w.reclaims), Written: model.Generation(w.version)}}
	for i, a := range historyWorkloads {
		if w.workloads[a] {
			all = append(all, model.HostSNAT{Key: model.SNATKey{VIP: portKey.VIP, Address: a}, Ranges: []model.Range{model.Range(ownRange + i)}, Written: 2})
		}
	}
	return listOf(1, all...)
}

// tell has the agent hear what the manager lists.
func (w *historyWorld) tell() {
	w.behind = nil
	w.hear(w.told())
	w.anew = false
}

// hear has the agent hear a list. Connections that it ends are those of workloads that are not listed, and of ranges that an
// agent which has started hears are not the host's.
func (w *historyWorld) hear(list wire.HostUpdate) {
	w.heard = true
	has := func(key model.SNATKey, r model.Range) bool {
		return slices.ContainsFunc(list.SNAT, func(s model.HostSNAT) bool { return s.Key == key && (r == 0 || slices.Contains(s.Ranges, r)) })
	}
	for _, s := range w.tables {
		for _, r := range s.Ranges {
			if !has(s.Key, 0) || w.anew && !has(s.Key, r) && !has(blockKey, r) {
				w.ends[r] = true
			}
		}
	}
	_ = w.ports.Apply(list)
}

// SetSNAT writes the tables of each workload in turn, until the agent is killed.
func (w *historyWorld) SetSNAT(wanted []model.HostSNAT, _ []netip.Prefix) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.killed {
		return errors.New("killed")
	}
	if w.refused != nil {
		return w.refused
	}
	listed := map[netip.Addr]bool{}
	for _, s := range wanted {
		listed[s.Key.Address] = true
	}
	for _, gone := range slices.SortedFunc(maps.Keys(w.tables), netip.Addr.Compare) {
		if !listed[gone] {
			w.show(gone, model.HostSNAT{})
			delete(w.tables, gone)
		}
	}
	for i, s := range wanted {
		if i == w.writes {
			w.killed = true
			return errors.New("killed")
		}
		w.show(s.Key.Address, s)
		w.tables[s.Key.Address] = s
	}
	return nil
}

// show judges each range that a workload's tables show from now on.
func (w *historyWorld) show(workload netip.Addr, now model.HostSNAT) {
	for _, r := range w.tables[workload].Ranges {
		if !slices.Contains(now.Ranges, r) {
			w.shown[r] = shown{workload, w.clock}
			if _, cut := w.used[r]; cut && !w.ends[r] {
				w.wrong("%s has a connection in range %d, which it loses", workload, r)
			}
			delete(w.used, r)
		}
	}
	for _, r := range now.Ranges {
		delete(w.ends, r)
		if slices.Contains(w.tables[workload].Ranges, r) {
			continue
		}
		last, was := w.shown[r]
		if was && last.workload != workload && w.clock-last.at < snatport.QuarantineTime {
			w.wrong("%s has range %d %s after %s", workload, r, w.clock-last.at, last.workload)
		}
		for other, s := range w.tables {
			if other != workload && slices.Contains(s.Ranges, r) {
				w.wrong("%s has range %d, which %s has", workload, r, other)
			}
		}
		if own := r >= ownRange && r < ownRange+model.Range(len(historyWorkloads)); !own && !slices.Contains(w.block, uint32(r)) {
			w.wrong("%s has range %d, which is not the host's", workload, r)
		}
	}
}

// AssignPort opens a connection in a range that is open and has none yet.
func (w *historyWorld) AssignPort(flow agentsnat.Flow) (netip.AddrPort, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.assign(flow)
}

func (w *historyWorld) assign(flow agentsnat.Flow) (netip.AddrPort, bool, error) {
	s := w.tables[flow.Workload.Addr()]
	for _, r := range s.Ranges {
		if _, taken := w.used[r]; !taken && !slices.Contains(s.Reclaim, r) {
			w.used[r] = flow.Workload.Addr()
			return netip.AddrPortFrom(portKey.VIP, r.First()), true, nil
		}
	}
	return netip.AddrPort{}, false, nil
}

func (w *historyWorld) SNATUse(bool) ([]agentsnat.Use, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.uses(func(s model.HostSNAT) (idle []agentsnat.IdleRange) {
		for _, r := range s.Ranges {
			if _, taken := w.used[r]; !taken {
				idle = append(idle, agentsnat.IdleRange{Range: r})
			}
		}
		return idle
	})
	for _, dip := range historyWorkloads {
		if w.race {
			_, _, _ = w.assign(agentsnat.Flow{Workload: netip.AddrPortFrom(dip, 1)})
		}
	}
	w.race = false
	return all, nil
}

// answer is the manager's, unless it is lost on the way.
func answer[T any](w *historyWorld, a *T) (*T, error) {
	if w.lose {
		w.lose = false
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("the leader died"))
	}
	return a, nil
}

// AllocatePorts gives ranges that have rested, before new ones.
func (w *historyWorld) AllocatePorts(_ context.Context, r *weirv1.AllocatePortsRequest) (*weirv1.AllocatePortsResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.GetAddress() != blockKey.Address.String() {
		return nil, rpc.RefusePorts(rpc.PortsExhausted, time.Second, errors.New("by blocks alone"))
	}
	var given []uint32
	for _, n := range slices.Sorted(maps.Keys(w.back)) {
		if len(given) < 4 && w.clock-w.back[n] >= snatport.QuarantineTime {
			given = append(given, n)
			delete(w.back, n)
		}
	}
	for len(given) < 4 && w.next < 540 {
		given = append(given, w.next)
		w.next++
	}
	if len(given) == 0 {
		return nil, rpc.RefusePorts(rpc.PortsExhausted, time.Second, errors.New("none left"))
	}
	block := slices.Concat(w.block, given)
	slices.Sort(block)
	return answer(w, &weirv1.AllocatePortsResponse{Allocation: w.change(block, r.GetHas()), Given: given})
}

// ReleasePorts takes ranges back, which no table of the host may show.
func (w *historyWorld) ReleasePorts(_ context.Context, r *weirv1.ReleasePortsRequest) (*weirv1.ReleasePortsResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.GetAddress() != blockKey.Address.String() { // its own range it keeps, and none of the block is its to give
		for _, n := range r.GetRanges() {
			if w.heard && slices.Contains(w.block, n) {
				w.wrong("range %d of the block is given back as one of %s", n, r.GetAddress())
			}
		}
		own := ownRange + slices.IndexFunc(historyWorkloads, func(a netip.Addr) bool { return a.String() == r.GetAddress() })
		return answer(w, &weirv1.ReleasePortsResponse{Allocation: &weirv1.PortAllocation{Ranges: []uint32{uint32(own)}, Written: 2}})
	}
	for _, n := range r.GetRanges() {
		for workload, s := range w.tables {
			if slices.Contains(s.Ranges, model.Range(n)) {
				w.wrong("range %d is given back, which %s has", n, workload)
			}
		}
		if slices.Contains(w.block, n) {
			w.back[n] = w.clock
		}
	}
	left := slices.DeleteFunc(slices.Clone(w.block), func(n uint32) bool { return slices.Contains(r.GetRanges(), n) })
	w.reclaims = slices.DeleteFunc(w.reclaims, func(n model.Range) bool { return !slices.Contains(left, uint32(n)) })
	return answer(w, &weirv1.ReleasePortsResponse{Allocation: w.change(left, r.GetHas())})
}

// step does one thing that happens on a host.
func (w *historyWorld) step() {
	t, ctx := w.t, context.Background()
	workload := rapid.SampledFrom(historyWorkloads).Draw(t, "workload")
	switch rapid.SampledFrom([]string{"connect", "connect", "connect", "low", "end", "release", "release", "race", "tell", "reclaim", "list", "lose", "others", "refuse", "behind", "kill", "kill in the midst"}).Draw(t, "what") {
	case "connect":
		n := waitsOf(workload, fmt.Sprint(w.clock))
		n.Flow.Workload = netip.AddrPortFrom(workload, uint16(rapid.IntRange(1024, 60000).Draw(t, "port")))
		w.ports.handleNotice(ctx, n, w.now())
	case "low":
		n := waitsOf(workload, "")
		n.Kind = agentsnat.NoticeLow
		w.ports.handleNotice(ctx, n, w.now())
	case "end": // all connections of a workload
		maps.DeleteFunc(w.used, func(_ model.Range, of netip.Addr) bool { return of == workload })
	case "race":
		w.race = true
	case "release":
		w.ports.release(ctx, w.now())
	case "tell":
		w.before = w.told()
		w.tell()
	case "reclaim":
		w.reclaims = nil
		for _, n := range w.block {
			if n%3 == 0 {
				w.reclaims = append(w.reclaims, model.Range(n))
			}
		}
	case "list": // a workload is there no more, or again
		w.workloads[workload] = !w.workloads[workload]
	case "lose":
		w.lose = true
	case "others": // another host asks
		for n, since := range w.back {
			if w.clock-since >= snatport.QuarantineTime {
				w.others[n] = true
				delete(w.back, n)
			}
		}
	case "refuse": // tables can't be written, or can again
		w.refused = map[bool]error{false: errors.New("no room")}[w.refused != nil]
	case "behind": // the agent has turned to a manager that is
		w.behind, w.since = &w.before, w.clock
	case "kill":
		w.behind, w.since = &w.before, w.clock
		w.start()
	case "kill in the midst":
		w.writes = rapid.IntRange(0, len(historyWorkloads)).Draw(t, "writes")
	}
	w.ports.asking.Wait()
	if w.killed {
		w.behind, w.since = &w.before, w.clock
		w.start()
	}
}

// Ports with a host's block, its tables and a manager: whatever workloads need, whichever answer is lost, and whenever the
// agent is killed, a range is in the tables of one workload, is the host's, and rests before another workload has it.
func TestNothingIsLentTwice(t *testing.T) {
	for range 50 { // some faults show in one of a thousand histories
		rapid.Check(t, checkHistory)
	}
}

func checkHistory(t *rapid.T) {
	w := newHistory(t)
	for range rapid.IntRange(1, 80).Draw(t, "steps") {
		w.clock += time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second
		switch {
		case w.behind == nil:
		case w.clock-w.since > snatport.QuarantineTime/2: // no manager is behind for so long
			w.tell()
		case rapid.Bool().Draw(t, "by a manager that is behind"):
			w.hear(*w.behind)
		}
		w.step()
		if w.fault != "" {
			t.Fatal(w.fault)
		}
		for workload, s := range w.tables {
			for _, r := range s.Ranges {
				if w.others[uint32(r)] {
					t.Fatalf("%s has range %d, which another host has", workload, r)
				}
			}
		}
	}
}
