package mux

import (
	"fmt"
	"log/slog"
	"math/bits"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// filtered is a data plane whose time a test passes, and whose filter it fills as strangers may.
type filtered struct {
	*Datapath
	raw    [][]byte
	memory *flow.Memory
	filter []bpf.MuxFlowFilter // one
	passed uint32              // ticks, beyond those of the clock
}

func newFiltered(t *testing.T, endpoints ...model.MuxEndpoint) *filtered {
	t.Helper()
	f := &filtered{Datapath: newFilled(t, endpoints...)}
	var err error
	if f.filter, err = abi.MapRows[bpf.MuxFlowFilter](&f.raw, f.tables.FlowFilter); err != nil {
		t.Fatal(err)
	}
	if f.memory, err = flow.Map(&f.tables); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { abi.Unmap(&f.raw); f.memory.Close() })
	return f
}

func (f *filtered) now(t *testing.T) uint32 {
	t.Helper()
	now, err := flow.Now(&f.tables)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func epochShift(t *testing.T) uint32 {
	t.Helper()
	tick, err := bpf.FlowTick()
	if err != nil {
		t.Fatal(err)
	}
	return bpf.FlowEpochShift(tick)
}

// epoch is that of the filter's words now.
func (f *filtered) epoch(t *testing.T) uint64 {
	t.Helper()
	return uint64(f.now(t)>>epochShift(t)) << bpf.MuxFlowFilterLayoutFLOW_FILTER_BITS
}

// midEpoch waits until an epoch has more than a tick to go.
func (f *filtered) midEpoch(t *testing.T) {
	t.Helper()
	shift := epochShift(t)
	until(t, "an epoch goes on", func() bool { now := f.now(t); return (now+2)>>shift == now>>shift })
}

// fill writes all words of the filter.
func (f *filtered) fill(bits func() uint64) {
	for i := range f.filter[0].Words {
		atomic.StoreUint64(&f.filter[0].Words[i], bits())
	}
}

// saturate sets all bits of this epoch, more than any packets can.
func (f *filtered) saturate(t *testing.T) {
	word := f.epoch(t) | (1<<bpf.MuxFlowFilterLayoutFLOW_FILTER_BITS - 1)
	f.fill(func() uint64 { return word })
}

// marked counts the buckets that are marked as moved.
func (f *filtered) marked(t *testing.T, key model.EndpointKey) (n int) {
	t.Helper()
	span, _ := bpf.UnpackSlices(f.endpoints.Live[key].Row.Slices).BucketSpan(false)
	rows := make([]bpf.MuxBucketRow, 1<<span.Bits)
	if err := bpf.ReadRows(f.tables.Buckets, "buckets", span, rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		for _, word := range row.Slots {
			if word&uint16(bpf.MuxBucketLayoutBUCKET_MOVED) != 0 {
				n++
			}
		}
	}
	return n
}

// pass has time pass for the flow table.
func (f *filtered) pass(ticks uint32) {
	f.passed += ticks
	for i := range f.memory.Sets {
		for j := range f.memory.Sets[i].Cells {
			f.memory.Sets[i].Cells[j].Expires -= ticks
		}
	}
}

func (f *filtered) settle(t *testing.T) {
	t.Helper()
	if err := (endpoint.Marks{Table: f.endpoints}).Settle(f.now(t) + f.passed); err != nil {
		t.Fatal(err)
	}
}

// remembered is the slot that the flow table has of a flow; 0: it has none.
func (f *filtered) remembered(t *testing.T, p pkt.Packet) model.Slot {
	t.Helper()
	of := model.Flow{
		Protocol: model.UDP, Source: netip.AddrPortFrom(p.IP.Source, p.SourcePort), Destination: netip.AddrPortFrom(p.IP.Destination, p.DestinationPort),
	}
	if p.Flags != 0 {
		of.Protocol = model.TCP
	}
	hash := testSettings().HashKey.Sum64(of)
	tag, now := (hash^f.endpoints.Live[of.Endpoint()].Row.Salt)>>14, f.now(t)
	for _, cell := range f.memory.Sets[hash%uint64(len(f.memory.Sets))].Cells {
		if cell.Flow>>13 == tag<<1 && cell.Owner != 0 && int32(cell.Expires-now) >= 0 {
			return model.Slot(cell.Flow & (1<<13 - 1))
		}
	}
	return 0
}

// filterClasses are packets of flows without a cookie.
func filterClasses() map[string]pkt.Packet {
	return map[string]pkt.Packet{
		"tcp v4": pkt.TCP(client4, vip4, pkt.ACK), "udp v4": pkt.UDP(client4, vip4),
		"tcp v6": pkt.TCP(client6, vip6, pkt.ACK), "udp v6": pkt.UDP(client6, vip6),
	}
}

// A flow that was found in the table is not looked up again in its epoch, unless its bucket moves.
func TestKnownFlowsAreNotLookedUp(t *testing.T) {
	for name, p := range filterClasses() {
		t.Run(name, func(t *testing.T) {
			protocol := model.UDP
			if p.Flags != 0 {
				protocol = model.TCP
			}
			to := func(slot model.Slot) model.MuxEndpoint {
				e := newEndpoint(netip.AddrPortFrom(p.IP.Destination, p.DestinationPort).String(), protocol, first, second)
				allTo(&e, slot)
				return e
			}
			f := newFiltered(t, to(1))
			want := func(verdict, tunnel string) {
				t.Helper()
				before := verdicts(t, f.Datapath)
				wantChosen(t, f.Datapath, p, tunnel)
				if diff := cmp.Diff(map[string]uint64{verdict: 1}, difference(before, verdicts(t, f.Datapath))); diff != "" {
					t.Errorf("verdicts (-want +got):\n%s", diff)
				}
			}
			f.midEpoch(t)
			want("forward_bucket", first)
			want("forward_flow", first)
			for i := range f.memory.Sets { // of which the next one sees nothing
				f.memory.Sets[i] = bpf.MuxFlowSet{}
			}
			want("forward_known", first)
			f.fill(func() uint64 { return (f.epoch(t) ^ 1<<63) | (1<<bpf.MuxFlowFilterLayoutFLOW_FILTER_BITS - 1) }) // of another epoch
			want("forward_bucket", first)
			want("forward_flow", first)
			want("forward_known", first)
			apply(t, f.Datapath, to(2))
			want("forward_flow", first)
			f.saturate(t)
			want("forward_flow", first)
		})
	}
}

// Where the idle timeout has few epochs, where cookies warm up, and where the bucket's backend is down, the table is asked
// whatever bits are set.
func TestFilterIsNotAskedWhereItIsNotCertain(t *testing.T) {
	for name, change := range map[string]func(*model.MuxEndpoint){
		"short idle timeout": func(e *model.MuxEndpoint) { e.IdleTimeout = 60 * time.Second },
		"cookies warm up":    func(e *model.MuxEndpoint) { e.Cookies = model.CookiesSettling },
		"backend is down":    func(e *model.MuxEndpoint) { e.Backends[0].Down = true },
		"bucket moves":       func(e *model.MuxEndpoint) { e.Previous = slices.Repeat([]model.Slot{2}, len(e.Buckets)) },
	} {
		t.Run(name, func(t *testing.T) {
			e := only(1)
			change(&e)
			f := newFiltered(t, e)
			f.saturate(t)
			before := verdicts(t, f.Datapath)
			for range 3 {
				run(t, f.Datapath, pkt.TCP(client4, vip4, pkt.ACK).Frame())
			}
			if got := difference(before, verdicts(t, f.Datapath)); got["forward_known"] != 0 {
				t.Errorf("the table was not asked: %v", got)
			}
		})
	}
}

// Whatever strangers send, half of a word's bits are set at most, so a flow that goes on is looked up in one epoch of two.
func TestStrangersDelayWhatIsRememberedOnly(t *testing.T) {
	const flows, most = 300, int(bpf.MuxFlowFilterLayoutFLOW_FILTER_MOST)
	f := newFiltered(t, only(1))
	random := rand.New(rand.NewPCG(5, 6))
	var epoch uint64
	half := func() uint64 {
		word := epoch
		for _, bit := range random.Perm(int(bpf.MuxFlowFilterLayoutFLOW_FILTER_BITS))[:most] {
			word |= 1 << bit
		}
		return word
	}
	packet := func(i int) pkt.Packet { return pkt.TCP(randomTuple(0x0b000000, i).String(), vip4, pkt.ACK) }
	count := func() (n int) {
		for i := range flows {
			if f.remembered(t, packet(i)) != 0 {
				n++
			}
		}
		return n
	}
	for n := range 12 { // in each of them others have the flows' bits
		f.midEpoch(t)
		epoch = f.epoch(t)
		f.fill(half)
		for range 2 {
			for i := range flows {
				wantChosen(t, f.Datapath, packet(i), first)
			}
		}
		for i, word := range f.filter[0].Words {
			if set := bits.OnesCount64(word << 8); set > most {
				t.Fatalf("word %d has %d bits set, at most %d may be", i, set, most)
			}
		}
		if have := count(); n == 0 && (have < flows/3 || have > flows*2/3) {
			t.Errorf("in the first epoch %d of %d flows are remembered, want about half", have, flows)
		}
	}
	if n := count(); n < flows-2 {
		t.Errorf("after 12 epochs %d of %d flows are remembered", n, flows)
	}
}

// Bits are added until half of a word is set.
func TestWordsTakeBitsUntilHalfIsSet(t *testing.T) {
	const flows, most = 2000, int(bpf.MuxFlowFilterLayoutFLOW_FILTER_MOST)
	f := newFiltered(t, only(1))
	f.midEpoch(t)
	almost := f.epoch(t) | (1<<(most-1) - 1)
	f.fill(func() uint64 { return almost })
	for range 4 {
		for i := range flows {
			run(t, f.Datapath, pkt.TCP(randomTuple(0x0b000000, i).String(), vip4, pkt.ACK).Frame())
		}
	}
	taken := 0
	for i, word := range f.filter[0].Words {
		if word != almost {
			taken++
		}
		if set := bits.OnesCount64(word << 8); set > most {
			t.Fatalf("word %d has %d bits set, at most %d may be", i, set, most)
		}
	}
	if taken < flows/4 {
		t.Errorf("%d words took a bit of %d flows", taken, flows)
	}
}

// Marks of buckets go once no flow is remembered elsewhere, and not while one is.
func TestMarksLastAsLongAsFlowsElsewhere(t *testing.T) {
	e := onlyOf(vip4, 1)
	e.IdleTimeout = 2 * time.Minute
	f := newFiltered(t, e)
	old := pkt.TCP(client4, vip4, pkt.ACK)
	wantChosen(t, f.Datapath, old, first)
	wantChosen(t, f.Datapath, old, first)
	allTo(&e, 2)
	apply(t, f.Datapath, e)
	idle := f.endpoints.Live[e.Key].Row.Idle
	for range 8 { // as often as it may be silent
		f.saturate(t)
		wantChosen(t, f.Datapath, old, first)
		f.settle(t)
		f.pass(idle - 10)
		f.settle(t)
	}
	if n := f.marked(t, e.Key); n != 256/64 {
		t.Errorf("%d buckets are marked, want those of the part that the flow is in", n)
	}
	for range 3 {
		f.pass(2 * idle)
		f.settle(t)
	}
	if n := f.marked(t, e.Key); n != 0 {
		t.Errorf("%d buckets are marked, and no flow is remembered elsewhere", n)
	}
	f.saturate(t)
	before := verdicts(t, f.Datapath)
	wantChosen(t, f.Datapath, old, second)
	if got := difference(before, verdicts(t, f.Datapath)); got["forward_known"] != 1 {
		t.Errorf("got %v, want forward_known", got)
	}
}

// churn is an endpoint whose buckets change.
type churn struct {
	model.MuxEndpoint
	packets []pkt.Packet
}

// newChurn has flows of an endpoint without cookies.
func newChurn(vip, client string, udp, affinity bool) *churn {
	protocol := map[bool]model.Protocol{false: model.TCP, true: model.UDP}[udp]
	c := &churn{MuxEndpoint: newEndpoint(vip, protocol, churnTunnels...)}
	c.IdleTimeout, c.Affinity = 2*time.Minute, affinity
	for i := range 60 {
		from := fmt.Sprintf(client, i%20, 1024+i)
		if udp {
			c.packets = append(c.packets, pkt.UDP(from, vip))
		} else {
			c.packets = append(c.packets, pkt.TCP(from, vip, pkt.ACK))
		}
	}
	return c
}

var churnTunnels = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}

// change moves some buckets, ends moves or begins them, has more or fewer buckets, or takes all of them away.
func (c *churn) change(r *rand.Rand) {
	old := c.Buckets
	c.Previous = nil
	if r.IntN(8) == 0 {
		c.Affinity = !c.Affinity // all have other buckets
	}
	switch r.IntN(8) {
	case 0:
		c.Buckets = nil
		return
	case 1:
		c.Buckets = append(slices.Clone(old), old...)[:min(2*len(old), 512)]
	case 2:
		c.Buckets = slices.Clone(old[:len(old)/2])
	default:
		c.Buckets = slices.Clone(old)
	}
	if len(c.Buckets) == 0 {
		c.Buckets = make([]model.Slot, 1<<r.IntN(9))
	}
	for i := range c.Buckets {
		if c.Buckets[i] == 0 || r.IntN(6) == 0 {
			c.Buckets[i] = model.Slot(1 + r.IntN(len(churnTunnels)))
		}
	}
	if len(old) == len(c.Buckets) && r.IntN(2) == 0 {
		c.Previous = make([]model.Slot, len(old))
		for i := range old {
			if old[i] != c.Buckets[i] {
				c.Previous[i] = old[i]
			}
		}
	}
	for i := range c.Backends {
		c.Backends[i].Down = r.IntN(10) == 0
	}
}

// want is where a flow goes that is remembered at a slot, 0 for none: false is for nowhere.
func (c *churn) want(p pkt.Packet, remembered model.Slot) (netip.Addr, bool) {
	at := func(slot model.Slot) *model.MuxBackend { return &c.Backends[slot-1] }
	if remembered != 0 && !at(remembered).Down {
		return at(remembered).Tunnel, true
	}
	if len(c.Buckets) == 0 {
		return netip.Addr{}, false
	}
	of := model.Flow{
		Protocol: c.Key.Protocol, Source: netip.AddrPortFrom(p.IP.Source, p.SourcePort), Destination: netip.AddrPortFrom(p.IP.Destination, p.DestinationPort),
	}
	if c.Affinity {
		of.Source = netip.AddrPortFrom(of.Source.Addr(), 0)
	}
	return at(c.Buckets[testSettings().HashKey.Sum64(of)%uint64(len(c.Buckets))]).Tunnel, true
}

// A flow that is remembered goes where it was sent to, whatever bits are set, however buckets move and time passes, and
// across a restart of the daemon.
func TestNoFlowIsLostByTheFilter(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			all := []*churn{
				newChurn(vip4, "198.51.100.%d:%d", false, false), newChurn(vip4, "198.51.100.%d:%d", true, true),
				newChurn(vip6, "[2001:db8::%d]:%d", true, false), newChurn(vip6, "[2001:db8::%d]:%d", false, true),
			}
			var endpoints []model.MuxEndpoint
			for _, c := range all {
				endpoints = append(endpoints, c.MuxEndpoint)
			}
			f := newFiltered(t, endpoints...)
			before, kept := verdicts(t, f.Datapath), 0
			for n := range 20_000 {
				switch c := all[r.IntN(len(all))]; r.IntN(100) {
				case 0:
					c.change(r)
					apply(t, f.Datapath, c.MuxEndpoint)
				case 1, 2:
					f.pass(uint32(r.IntN(800)))
				case 3, 4, 5:
					f.settle(t)
				case 6, 7:
					f.saturate(t)
				case 8:
					f.fill(func() uint64 { return 0 })
				case 9:
					if n%20 == 0 {
						f.restart(t)
					}
				default:
					p := c.packets[r.IntN(len(c.packets))]
					at := f.remembered(t, p)
					want, sent := c.want(p, at)
					action, out := run(t, f.Datapath, p.Frame())
					if sent != (action == xdpTX) {
						t.Fatalf("step %d: action %d, want it sent: %v", n, action, sent)
					}
					if !sent {
						continue
					}
					if got := outerDestination(out[14:]); got != want {
						t.Fatalf("step %d: %s is remembered at slot %d, of buckets %v, and was sent to %s, want %s", n, p.IP.Source, at, c.Buckets, got, want)
					}
					if at != 0 {
						kept++
					}
				}
			}
			got := difference(before, verdicts(t, f.Datapath))
			t.Logf("%d packets of remembered flows: %v", kept, got)
			for _, verdict := range []string{"forward_known", "forward_flow", "forward_bucket", "forward_chained", "forward_failover"} {
				if got[verdict] < 100 {
					t.Errorf("%d packets got the verdict %s, which tell little", got[verdict], verdict)
				}
			}
		})
	}
}

// restart has another process adopt the tables.
func (f *filtered) restart(t *testing.T) {
	t.Helper()
	next := newDatapath(testSizes, slog.New(slog.DiscardHandler))
	next.tables, next.programs = f.tables, f.programs
	if err := next.readLive(); err != nil {
		t.Fatal(err)
	}
	old := f.Datapath
	old.closeShared()
	t.Cleanup(func() { next.tables, next.programs = bpf.Tables{}, bpf.Programs{}; _ = next.Close() })
	f.Datapath = next
	resolve(t, next)
}
