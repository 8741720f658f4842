package snat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	agentsnat "github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wire"
)

// portWorld is a data plane, a wire and a manager for ports, which note what they are asked.
type portWorld struct {
	mu      sync.Mutex
	ranges  []model.Range    // of the workload, in the data plane
	written model.Generation // of these
	closed  []model.Range
	idle    []agentsnat.IdleRange
	done    []string
	refuse  error // of AllocatePorts
	// unreleased is the error of ReleasePorts.
	unreleased error
	given      []uint32
	waiting    bool // OpenFlow finds that more waits, once
	open       bool // what waited is open by now
}

func (w *portWorld) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = append(w.done, fmt.Sprintf(format, args...))
}

func (w *portWorld) SetSNAT(wanted []model.HostSNAT, _ []netip.Prefix) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ranges, w.closed = nil, nil
	for _, s := range wanted {
		w.ranges, w.closed, w.written = s.Ranges, s.Reclaim, s.Written
	}
	return nil
}

func (w *portWorld) AssignPort(agentsnat.Flow) (netip.AddrPort, bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.ranges) == 0 {
		return netip.AddrPort{}, false, nil
	}
	return netip.AddrPortFrom(portKey.VIP, w.ranges[0].First()), true, nil
}

func (w *portWorld) OpenFlow(_ agentsnat.Flow, sent uint32) (bool, error) {
	w.note("open after %d", sent)
	more := w.waiting
	w.waiting = false
	return !more, nil
}

func (w *portWorld) EndQueuedFlow(agentsnat.Flow) (bool, error)  { w.note("end"); return !w.open, nil }
func (w *portWorld) ReleaseQueued(uint32, int) error             { return nil }
func (w *portWorld) RefusePorts(netip.Addr, time.Duration) error { w.note("refuse"); return nil }
func (w *portWorld) Transmit(to netip.Addr, packet []byte) error {
	w.note("leave %s", packet[28:])
	return nil
}

func (w *portWorld) Reject(to netip.Addr, packet []byte) error {
	w.note("tell %d", packet[20])
	return nil
}

func (w *portWorld) SNATUse(bool) ([]agentsnat.Use, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return []agentsnat.Use{{Key: portKey, Tunnel: portKey.Address, Ranges: w.ranges, Written: w.written, Idle: w.idle}}, nil
}

func (w *portWorld) AllocatePorts(_ context.Context, r *weirv1.AllocatePortsRequest) (*weirv1.AllocatePortsResponse, error) {
	w.note("ask %d", r.GetPorts())
	return &weirv1.AllocatePortsResponse{Allocation: &weirv1.PortAllocation{Ranges: w.given, Written: 7}}, w.refuse
}

func (w *portWorld) ReleasePorts(_ context.Context, r *weirv1.ReleasePortsRequest) (*weirv1.ReleasePortsResponse, error) {
	w.note("release %v", r.GetRanges())
	left := &weirv1.PortAllocation{Written: 8}
	for _, held := range wire.RangesToProto(w.ranges) {
		if !slices.Contains(r.GetRanges(), held) {
			left.Ranges = append(left.Ranges, held)
		}
	}
	return &weirv1.ReleasePortsResponse{Allocation: left}, w.unreleased
}

var portKey = model.SNATKey{VIP: netip.MustParseAddr("203.0.113.20"), Address: netip.MustParseAddr("10.1.0.2")}

// newPortWorld has one workload with these ranges.
func newPortWorld(t *testing.T, ranges ...model.Range) (*portWorld, *Ports) {
	t.Helper()
	w := &portWorld{given: []uint32{300}}
	p := New(Config{Datapath: w, Sender: w, Manager: w, MSS: func(bool) int { return 1370 }}, "h1", slog.New(slog.DiscardHandler), func([]netip.Addr) {})
	err := p.Apply(wire.HostUpdate{SNATSnapshot: true, SNAT: []model.HostSNAT{{
		Key: portKey, Ranges: ranges, MaxPorts: 64, KeepPorts: 8, IdleTimeout: time.Minute, Exhausted: model.ExhaustedReject, Written: 3,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return w, p
}

// waits is a datagram that waits for a port.
func waits(order uint32, text string) agentsnat.Notice {
	packet := pkt.UDP("10.1.0.2:5000", "198.51.100.7:53", pkt.Payload([]byte(text)))
	return agentsnat.Notice{
		Kind: agentsnat.NoticeQueued, Number: 1, Workload: portKey.Address, Order: order, Frame: packet.Frame(), L3: 14, L4: 34,
		Flow: agentsnat.Flow{Protocol: model.UDP, Workload: netip.MustParseAddrPort("10.1.0.2:5000"), Remote: netip.MustParseAddrPort("198.51.100.7:53")},
	}
}

func (w *portWorld) want(t *testing.T, want ...string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.done, want) {
		t.Errorf("done is\n%s, not\n%s", strings.Join(w.done, "\n"), strings.Join(want, "\n"))
	}
	w.done = nil
}

// One request is made for what waits; then it leaves in order, and the flow is opened, again if more came.
func TestPortsServeWhatWaits(t *testing.T) {
	w, p := newPortWorld(t)
	w.waiting = true
	now := time.Now()
	p.mu.Lock() // the answer comes after both
	p.enqueue(p.workloads[portKey.Address], waits(1, "one"), now)
	p.assignPorts(t.Context(), p.workloads[portKey.Address], now)
	p.enqueue(p.workloads[portKey.Address], waits(2, "two"), now)
	p.assignPorts(t.Context(), p.workloads[portKey.Address], now)
	p.mu.Unlock()
	p.asking.Wait()
	w.want(t, "ask 1", "leave one", "leave two", "open after 2")
	p.handleNotice(t.Context(), waits(3, "three"), now)
	w.want(t, "leave three", "open after 3")
	if !slices.Equal(w.ranges, []model.Range{300}) || len(p.workloads[portKey.Address].queue) != 0 {
		t.Errorf("ranges are %v, %d flows wait", w.ranges, len(p.workloads[portKey.Address].queue))
	}
	// What the manager said before its answer is no news.
	old := model.HostSNAT{Key: portKey, MaxPorts: 64, Written: 6}
	if err := p.Apply(wire.HostUpdate{SNAT: []model.HostSNAT{old}}); err != nil || len(w.ranges) != 1 {
		t.Errorf("an older list leaves %v, %v", w.ranges, err)
	}
}

// A flow whose port comes in the last moment, and which can't be opened at once, has time for that.
func TestPortsComeLate(t *testing.T) {
	w, p := newPortWorld(t)
	w.refuse = connect.NewError(connect.CodeUnavailable, errors.New("away"))
	now := time.Now()
	p.handleNotice(t.Context(), waits(1, "one"), now)
	p.asking.Wait()
	w.want(t, "ask 1")
	w.ranges, w.waiting = []model.Range{300}, true
	p.tick(t.Context(), now.Add(p.config.Bounds.Time-time.Millisecond))
	w.want(t, "leave one", "open after 1")
	p.tick(t.Context(), now.Add(p.config.Bounds.Time+time.Millisecond))
	w.want(t, "open after 1")
	if n := len(p.workloads[portKey.Address].queue); n != 0 {
		t.Errorf("%d flows wait", n)
	}
}

// A refusal is told to the workload; a manager that can't be reached is asked again until the time is over.
func TestPortsRefused(t *testing.T) {
	w, p := newPortWorld(t)
	w.refuse = rpc.RefusePorts(rpc.PortsExhausted, time.Second, errors.New("none left"))
	p.handleNotice(t.Context(), waits(1, "one"), time.Now())
	p.asking.Wait()
	w.want(t, "ask 1", "refuse", "end", "tell 3")
	if warnings := p.Warnings(); len(warnings) != 1 || warnings[0] != "no more ports for 10.1.0.2 as 203.0.113.20" {
		t.Errorf("warnings are %q", warnings)
	}

	w, p = newPortWorld(t)
	w.refuse = connect.NewError(connect.CodeUnavailable, errors.New("away"))
	now := time.Now()
	p.handleNotice(t.Context(), waits(1, "one"), now)
	p.asking.Wait()
	p.tick(t.Context(), now.Add(time.Second))
	p.asking.Wait()
	p.tick(t.Context(), now.Add(time.Minute))
	w.want(t, "ask 1", "ask 1", "end", "tell 3")
}

// Ranges are named while the manager asks for them, and kept while it tells nothing of them.
func TestRangesAreToldWhenAskedFor(t *testing.T) {
	w, p := newPortWorld(t, 300, 301)
	w.ranges = []model.Range{300, 301}
	for _, asked := range []bool{false, true, false} {
		if err := p.Apply(wire.HostUpdate{TellRanges: asked}); err != nil {
			t.Fatal(err)
		}
		uses, told := p.Usage()
		want := 0
		if asked {
			want = len(w.ranges)
		}
		if told != asked || len(uses) != 1 || len(uses[0].GetRangeNumbers()) != want || len(w.ranges) == 0 {
			t.Errorf("asked: %v; it tells: %v, %v", asked, told, uses)
		}
	}
}

// A report tells ranges with the generation that they are of, though an answer comes while they are read: a manager would
// take them for wrong.
func TestAReportIsOfOneGeneration(t *testing.T) {
	w, p := newPortWorld(t, 300)
	p.workloads[portKey.Address].config.Written = 9 // the data plane has not got its ranges yet
	if uses, _ := p.Usage(); len(uses) != 1 || uses[0].GetWritten() != 3 || uses[0].GetRanges() != 1 {
		t.Errorf("it tells %v", uses)
	}
	w.want(t)
}

// A flow whose SYN has found a port meanwhile is neither ended nor refused when its time is over.
func TestWhatHasAPortIsNotGivenUp(t *testing.T) {
	w, p := newPortWorld(t)
	w.refuse, w.open = connect.NewError(connect.CodeUnavailable, errors.New("away")), true
	now := time.Now()
	p.handleNotice(t.Context(), waits(1, "one"), now)
	p.asking.Wait()
	p.tick(t.Context(), now.Add(time.Minute))
	w.want(t, "ask 1", "end")
	if client := p.workloads[portKey.Address]; len(client.queue) != 0 || client.exhausted != 0 {
		t.Errorf("%d flows wait, %d packets found no port", len(client.queue), client.exhausted)
	}
}

// For whom there is no room is told so; no ports would help.
func TestNoRoomIsTold(t *testing.T) {
	w, p := newPortWorld(t)
	full := waits(1, "one")
	full.Kind = agentsnat.NoticeFull
	p.handleNotice(t.Context(), full, time.Now())
	p.asking.Wait()
	w.want(t, "tell 3")
}

// What is idle is closed first, given back when it still is, and what must be kept is kept.
func TestPortsAreGivenBack(t *testing.T) {
	w, p := newPortWorld(t, 300, 301, 302)
	w.idle = []agentsnat.IdleRange{{Range: 301}, {Range: 302}}
	now := time.Now()
	p.release(t.Context(), now)
	if !slices.Equal(slices.Sorted(slices.Values(w.closed)), []model.Range{301, 302}) {
		t.Errorf("closed are %v", w.closed)
	}
	w.idle = w.idle[1:] // a flow has come to 301
	p.release(t.Context(), now.Add(2*releaseInterval))
	p.asking.Wait()
	w.want(t, "release [302]")
	if !slices.Equal(w.ranges, []model.Range{300, 301}) || len(w.closed) != 0 {
		t.Errorf("ranges are %v, closed %v", w.ranges, w.closed)
	}
}

// A workload at its limit of ports is refused by the host itself: the manager is not asked, and what waits is told so.
func TestAWorkloadAtItsLimitIsNotAskedFor(t *testing.T) {
	ranges := make([]model.Range, 8) // of the 64 ports of newPortWorld
	for i := range ranges {
		ranges[i] = model.Range(300 + i)
	}
	w, p := newPortWorld(t, ranges...)
	w.ranges = nil // all are in use
	now := time.Now()
	p.handleNotice(t.Context(), waits(1, "one"), now)
	low := waits(2, "")
	low.Kind = agentsnat.NoticeLow
	p.handleNotice(t.Context(), low, now)
	p.tick(t.Context(), now.Add(2*refusedFor))
	p.asking.Wait()
	w.want(t, "refuse", "end", "tell 3")
	if p.workloads[portKey.Address].wantsPorts {
		t.Error("it asks again at the next tick")
	}
}
