package snat

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	agentsnat "github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/wire"
)

var (
	blockKey = model.BlockKey(portKey.VIP, "h1")
	otherKey = model.SNATKey{VIP: portKey.VIP, Address: netip.MustParseAddr("10.1.0.3")}
)

// blockWorld is a data plane with two workloads, and a manager that gives the host a block.
type blockWorld struct {
	portWorld
	tables  map[netip.Addr]model.HostSNAT
	block   []uint32 // of the host, by the manager
	version uint64
	next    uint32 // range that is given next
	refused error  // of SetSNAT
	clock   time.Duration
	deltas  int                          // answers that told what differs
	spoil   func(*weirv1.PortAllocation) // an answer
	late    time.Duration                // how long an answer to AllocatePorts takes
	gives   int                          // ranges an answer; 0: 8
}

func (w *blockWorld) SetSNAT(wanted []model.HostSNAT, _ []netip.Prefix) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused != nil {
		return w.refused
	}
	clear(w.tables)
	for _, s := range wanted {
		w.tables[s.Key.Address] = s
	}
	return nil
}

func (w *blockWorld) AssignPort(flow agentsnat.Flow) (netip.AddrPort, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.tables[flow.Workload.Addr()]
	for _, r := range s.Ranges {
		if !slices.Contains(s.Reclaim, r) && r >= 500 { // its own ranges are all in use
			return netip.AddrPortFrom(portKey.VIP, r.First()), true, nil
		}
	}
	return netip.AddrPort{}, false, nil
}

func (w *blockWorld) SNATUse(bool) ([]agentsnat.Use, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uses(func(model.HostSNAT) []agentsnat.IdleRange { return w.idle }), nil
}

// uses are what the tables of workloads show, which ranges have no connection by idle.
func (w *blockWorld) uses(idle func(model.HostSNAT) []agentsnat.IdleRange) (all []agentsnat.Use) {
	for _, dip := range slices.SortedFunc(maps.Keys(w.tables), netip.Addr.Compare) {
		s := w.tables[dip]
		all = append(all, agentsnat.Use{Key: s.Key, Tunnel: s.Key.Address, Ranges: s.Ranges, Written: s.Written, Idle: idle(s)})
	}
	return all
}

func (w *blockWorld) AllocatePorts(ctx context.Context, r *weirv1.AllocatePortsRequest) (*weirv1.AllocatePortsResponse, error) {
	w.note("ask %s %d", r.GetAddress(), r.GetPorts())
	time.Sleep(w.late)
	if err := ctx.Err(); err != nil {
		w.note("%v", err)
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		return nil, w.refuse
	}
	var given []uint32
	for range cmp.Or(w.gives, 8) {
		given = append(given, w.next)
		w.next++
	}
	return &weirv1.AllocatePortsResponse{Allocation: w.change(slices.Concat(w.block, given), r.GetHas()), Given: given}, nil
}

func (w *blockWorld) ReleasePorts(_ context.Context, r *weirv1.ReleasePortsRequest) (*weirv1.ReleasePortsResponse, error) {
	w.note("release %s %v", r.GetAddress(), r.GetRanges())
	w.mu.Lock()
	defer w.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(w.block), func(n uint32) bool { return slices.Contains(r.GetRanges(), n) })
	return &weirv1.ReleasePortsResponse{Allocation: w.change(left, r.GetHas())}, nil
}

// change changes the block, and answers as a manager does.
func (w *blockWorld) change(block []uint32, has uint64) *weirv1.PortAllocation {
	list := func() snat.List {
		ranges, _ := wire.RangesFromProto(w.block)
		return snat.List{Written: model.Generation(w.version), Ranges: ranges}
	}
	before := list()
	if has != before.Digest() {
		before = snat.List{}
	}
	w.block = block
	w.version++
	answer := wire.PortAllocationToProto(list(), before)
	if answer.GetDelta() != nil {
		w.deltas++
	}
	if w.spoil != nil {
		w.spoil(answer)
	}
	return answer
}

// list is all that a manager tells: a range of its own for each workload, and the block.
func (w *blockWorld) list() wire.HostUpdate {
	told, _ := wire.RangesFromProto(w.block)
	return listOf(1,
		model.HostSNAT{Key: portKey, Ranges: []model.Range{300}, Written: 2},
		model.HostSNAT{Key: otherKey, Ranges: []model.Range{301}, Written: 2},
		model.HostSNAT{Key: blockKey, Tunnel: portKey.Address, Ranges: told, Written: model.Generation(w.version)},
	)
}

// start is an agent that starts, and hears of the manager.
func (w *blockWorld) start(t *testing.T) *Ports {
	t.Helper()
	p := New(Config{
		Datapath: w, Sender: w, Manager: w, MSS: func(bool) int { return 1370 }, Live: slices.Collect(maps.Values(w.tables)),
	}, "h1", slog.New(slog.DiscardHandler), func([]netip.Addr) {})
	p.now = func() time.Duration { return w.clock }
	mustApply(t, p, w.list())
	return p
}

func newBlockWorld(t *testing.T) (*blockWorld, *Ports) {
	w := &blockWorld{tables: map[netip.Addr]model.HostSNAT{}, version: 3, next: 500, clock: time.Hour}
	return w, w.start(t)
}

// waitsOf is a datagram of a workload that waits for a port.
func waitsOf(workload netip.Addr, text string) agentsnat.Notice {
	n := waits(1, text)
	n.Workload, n.Flow.Workload = workload, netip.AddrPortFrom(workload, 5000)
	return n
}

func (w *blockWorld) has(t *testing.T, what string, workload netip.Addr, want ...model.Range) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.tables[workload].Ranges; !slices.Equal(got, want) {
		t.Errorf("%s: %s has %v, not %v", what, workload, got, want)
	}
}

// The first workload that needs ports has the manager asked for a block; the second is served from it without a call.
func TestABlockServesWorkloads(t *testing.T) {
	w, p := newBlockWorld(t)
	p.handleNotice(t.Context(), waitsOf(portKey.Address, "one"), time.Now())
	p.asking.Wait()
	w.want(t, "ask "+blockKey.Address.String()+" 8", "leave one", "open after 1")
	p.handleNotice(t.Context(), waitsOf(otherKey.Address, "two"), time.Now())
	w.want(t, "leave two", "open after 1")
	w.has(t, "after both", portKey.Address, 300, 500)
	w.has(t, "after both", otherKey.Address, 301, 501)

	uses, _ := p.Usage()
	if len(uses) != 3 {
		t.Fatalf("told are %v", uses)
	}
	for i, want := range []struct {
		key          model.SNATKey
		ranges, lent uint32
		digest       uint64
	}{
		{portKey, 1, 1, snat.Digest(portKey.VIP, portKey.Address, 300)},
		{otherKey, 1, 1, snat.Digest(portKey.VIP, otherKey.Address, 301)},
		{blockKey, 8, 2, snat.Digest(portKey.VIP, portKey.Address, 500, 501, 502, 503, 504, 505, 506, 507)},
	} {
		u := uses[i]
		if u.GetAddress() != want.key.Address.String() || u.GetRanges() != want.ranges || u.GetLentRanges() != want.lent || u.GetDigest() != want.digest {
			t.Errorf("%s: told is %v", want.key, u)
		}
	}
}

// An answer that is not enough for all who wait has more asked for, by a call that does not end with the one before.
func TestAnAnswerHasMoreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := newBlockWorld(t)
		w.late, w.gives = 100*time.Millisecond, 1
		p.handleNotice(t.Context(), waitsOf(portKey.Address, "one"), time.Now())
		p.handleNotice(t.Context(), waitsOf(otherKey.Address, "two"), time.Now())
		p.asking.Wait()
		w.has(t, "after the first answer", portKey.Address, 300, 500)
		w.has(t, "after the second one", otherKey.Address, 301, 501)
		if i := slices.IndexFunc(w.done, func(line string) bool { return strings.HasPrefix(line, "context ") }); i >= 0 {
			t.Errorf("a call ended: %s", w.done[i])
		}
	})
}

// Answers tell what differs from the block's list as the request named it. What does not fit changes nothing: the block
// comes by the stream, and the next answer follows that.
func TestAnswersTellWhatDiffers(t *testing.T) {
	w, p := newBlockWorld(t)
	ask := func() {
		b := p.blocks[portKey.VIP]
		p.mu.Lock()
		lending{p}.askForBlock(t.Context(), b, 1, time.Now())
		p.mu.Unlock()
		p.asking.Wait()
	}
	hasBlock := func(what string, deltas int, want ...uint32) {
		t.Helper()
		ranges, _ := p.blocks[portKey.VIP].pool.Ranges()
		if !slices.Equal(wire.RangesToProto(ranges), want) || w.deltas != deltas {
			t.Errorf("%s the block is %v after %d deltas, not %v after %d", what, ranges, w.deltas, want, deltas)
		}
	}
	ask()
	hasBlock("after the first answer", 0, w.block...)
	ask()
	hasBlock("after the second", 1, w.block...)
	before := slices.Clone(w.block)
	for i, spoil := range []func(*weirv1.PortAllocation){
		func(a *weirv1.PortAllocation) { a.Delta.After++ },
		func(a *weirv1.PortAllocation) { a.Delta.Added = before[:1] },
		func(a *weirv1.PortAllocation) { a.Delta.Removed = []uint32{1} },
		func(a *weirv1.PortAllocation) { a.Delta.Added = []uint32{8192} },
	} {
		w.spoil = spoil
		ask()
		w.spoil = nil
		hasBlock("after an answer that does not fit", 2+2*i, before...)
		ask() // the manager gave ranges that the host does not know: it answers with the whole list
		hasBlock("after the next", 2+2*i, w.block...)
		ask()
		before = slices.Clone(w.block)
		hasBlock("after one more", 3+2*i, before...)
	}
}

// When less than half of what is to be free is, the manager is asked before anybody waits.
func TestABlockIsAskedForAhead(t *testing.T) {
	w, p := newBlockWorld(t)
	p.handleNotice(t.Context(), waitsOf(portKey.Address, "one"), time.Now())
	p.asking.Wait()
	w.want(t, "ask "+blockKey.Address.String()+" 8", "leave one", "open after 1")
	low := waitsOf(portKey.Address, "")
	low.Kind = agentsnat.NoticeLow
	for range 3 {
		p.handleNotice(t.Context(), low, time.Now())
	}
	w.want(t)
	p.handleNotice(t.Context(), low, time.Now()) // three of eight are left
	p.asking.Wait()
	w.want(t, "ask "+blockKey.Address.String()+" 8")
	p.handleNotice(t.Context(), low, time.Now())
	p.asking.Wait()
	w.want(t)
}

// A VIP without ports is asked ahead of need once in a while, not at each look.
func TestARefusalEndsAskingAhead(t *testing.T) {
	w, p := newBlockWorld(t)
	now := time.Now()
	p.handleNotice(t.Context(), waitsOf(portKey.Address, "one"), now)
	p.asking.Wait()
	w.refuse = rpc.RefusePorts(rpc.PortsExhausted, time.Second, errors.New("none left"))
	low := waitsOf(portKey.Address, "")
	low.Kind = agentsnat.NoticeLow
	for range 4 {
		p.handleNotice(t.Context(), low, now)
	}
	p.asking.Wait()
	ask := "ask " + blockKey.Address.String() + " 8"
	w.want(t, ask, "leave one", "open after 1", ask)
	p.release(t.Context(), now.Add(aheadAfter-time.Second))
	p.asking.Wait()
	w.want(t)
	p.release(t.Context(), now.Add(aheadAfter+time.Minute))
	p.asking.Wait()
	w.want(t, ask)
}

// A restart keeps what workloads have of the block, and gives nothing else of it before it has rested.
func TestARestartKeepsWhatIsLent(t *testing.T) {
	w, p := newBlockWorld(t)
	p.handleNotice(t.Context(), waitsOf(portKey.Address, "one"), time.Now())
	p.asking.Wait()
	w.done = nil
	p = w.start(t)
	w.has(t, "after the restart", portKey.Address, 300, 500)
	w.has(t, "after the restart", otherKey.Address, 301)
	w.refuse = rpc.RefusePorts(rpc.PortsExhausted, time.Second, errors.New("none left"))
	p.handleNotice(t.Context(), waitsOf(otherKey.Address, "two"), time.Now())
	p.asking.Wait()
	w.has(t, "before the rest is over", otherKey.Address, 301)
	w.want(t, "ask "+blockKey.Address.String()+" 8", "refuse", "end")
	w.clock += snatport.QuarantineTime
	p.handleNotice(t.Context(), waitsOf(otherKey.Address, "two"), time.Now().Add(time.Minute))
	w.has(t, "after it", otherKey.Address, 301, 501)
	// A manager of before, which knows no blocks: what is lent ends.
	mustApply(t, p, listOf(1, model.HostSNAT{Key: portKey, Ranges: []model.Range{300}, Written: 2}))
	w.has(t, "without a block", portKey.Address, 300)
}

// Idle ranges return to the block, rest, and go back to the manager.
func TestIdleRangesReturnToTheBlock(t *testing.T) {
	w, p := newBlockWorld(t)
	now := time.Now()
	p.handleNotice(t.Context(), waitsOf(portKey.Address, "one"), now)
	p.asking.Wait()
	w.done = nil
	w.idle = []agentsnat.IdleRange{{Range: 300}, {Range: 500}}
	p.release(t.Context(), now)
	p.release(t.Context(), now.Add(2*releaseInterval))
	w.has(t, "when it was idle", portKey.Address, 300)
	p.handleNotice(t.Context(), waitsOf(otherKey.Address, "two"), now)
	w.has(t, "while it rests", otherKey.Address, 301, 501)
	// The manager takes the block's VIP from the host's workloads: nothing of it is in the tables.
	mustApply(t, p, wire.HostUpdate{SNATRemoved: []model.SNATKey{otherKey}})
	w.has(t, "when its workload is gone", otherKey.Address)
	w.clock += time.Hour
	p.blocks[portKey.VIP].granted = 2
	w.done = nil
	p.release(t.Context(), now.Add(time.Hour))
	p.asking.Wait()
	w.want(t, "release "+blockKey.Address.String()+" [502 503 504 505 506 507]")
	if all, _ := p.blocks[portKey.VIP].pool.Ranges(); !slices.Equal(all, []model.Range{500, 501}) {
		t.Errorf("the block is %v", all)
	}
}

// While the tables can't be written nothing is given: they may show it as another workload's.
func TestNothingIsLentWhileTablesAreNotWritten(t *testing.T) {
	w, p := newBlockWorld(t)
	now := time.Now()
	p.handleNotice(t.Context(), waitsOf(portKey.Address, "one"), now)
	p.asking.Wait()
	w.refused = errors.New("no room")
	if p.Apply(wire.HostUpdate{SNATRemoved: []model.SNATKey{portKey}}) == nil {
		t.Fatal("the tables are written")
	}
	w.clock += time.Hour
	p.handleNotice(t.Context(), waitsOf(otherKey.Address, "two"), now)
	p.asking.Wait()
	if _, lent := p.blocks[portKey.VIP].pool.Ranges(); lent != 0 {
		t.Errorf("%d ranges are lent", lent)
	}
	w.refused = nil
	if err := p.Apply(wire.HostUpdate{SNAT: w.list().SNAT[1:2]}); err != nil {
		t.Fatal(err)
	}
	p.tick(t.Context(), now)
	p.asking.Wait()
	w.has(t, "when the tables are written again, but for what they showed as another's until now", otherKey.Address, 301, 508)
}

// An agent starts anew whose tables are newer than what a manager tells of a workload: what the block has of it is lent.
func TestARestartBeforeAnOlderList(t *testing.T) {
	w, _ := newBlockWorld(t)
	w.block, w.version = []uint32{500, 501}, 5
	w.tables[portKey.Address] = model.HostSNAT{Key: portKey, Ranges: []model.Range{300, 302, 500}, Written: 9, Cluster: 1}
	p := w.start(t)
	w.has(t, "after the restart", portKey.Address, 300, 302, 500)
	w.clock += time.Hour
	p.handleNotice(t.Context(), waitsOf(otherKey.Address, "two"), time.Now())
	p.asking.Wait()
	w.has(t, "after the restart", otherKey.Address, 301, 501)
	if own := p.workloads[portKey.Address].config.Ranges; !slices.Equal(own, []model.Range{300, 302}) {
		t.Errorf("its own are %v", own)
	}
}
