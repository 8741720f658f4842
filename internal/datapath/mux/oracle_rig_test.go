package mux

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/oracle"
)

// oracleSizes leave so much room in the table of flows that none is ever given up.
var oracleSizes = bpf.Sizes{
	Endpoints: 256, BucketRows: 4096, Backends: 32768, FlowSets: 1 << 13, SNATVIPs: 8,
	Tokens: tokensEach(1 << 40), FragmentLife: 1 << 60, NATSets: oracleNATSets,
}

// rig is a data plane and an oracle that were told the same.
type rig struct {
	datapath      *Datapath
	mux           *oracle.Mux
	settings      pool.Settings
	hops          map[netip.Addr]model.NextHop
	before, after []model.MuxEndpoint
	ranges        []model.MuxSNAT
	snat          bool              // some have ranges
	numbers       map[string]uint32 // of the verdicts
	counted       map[string]uint64 // what the oracle says the program has counted
	options       ebpf.RunOptions
	punts         *Punts
	alone         bool // in its pool
}

func newRig(t testing.TB, seed uint64) *rig {
	t.Helper()
	g := &rig{
		datapath: newUnattached(t, oracleSizes), hops: map[netip.Addr]model.NextHop{},
		numbers: map[string]uint32{}, counted: map[string]uint64{},
	}
	for number, name := range g.datapath.tables.VerdictNames {
		g.numbers[name] = number
	}
	g.before, g.after = oracleWorld(rand.New(rand.NewPCG(seed, 0)))
	g.ranges = oracleRanges(rand.New(rand.NewPCG(seed, 7)))
	punts, err := g.datapath.Punts()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = punts.Close() })
	g.punts = punts
	g.setSettings(t, testSettings())
	for _, endpoints := range [][]model.MuxEndpoint{g.before, g.after} {
		if err := g.datapath.Replace(endpoints); err != nil {
			t.Fatal(err)
		}
	}
	g.setSNAT(t, true) // the hosts' next hops too
	for _, tunnel := range g.datapath.Tunnels() {
		if bytes := tunnel.AsSlice(); !unresolved[tunnel] {
			g.hops[tunnel] = model.NextHop{
				Source: [6]byte{2, 0xaa, 0, 0, 0, 1}, Destination: [6]byte{2, 0xbb, 0, 0, 0, bytes[len(bytes)-1]},
			}
		}
	}
	maps.Copy(g.hops, oracleMemberHops)
	maps.Copy(g.hops, oracleNATHops())
	if err := g.datapath.SetNextHops(g.hops); err != nil {
		t.Fatal(err)
	}
	g.setAlone(t, false)
	setNetworks(t, g.datapath)
	if err := g.datapath.SetNextHops(g.hops); err != nil {
		t.Fatal(err)
	}
	g.reset(t)
	return g
}

func (g *rig) setSettings(t testing.TB, p pool.Settings) {
	t.Helper()
	g.settings = p
	if err := g.datapath.SetSettings(p); err != nil {
		t.Fatal(err)
	}
}

// setAlone takes the mux out of its pool, or puts it there.
func (g *rig) setAlone(t testing.TB, alone bool) {
	t.Helper()
	g.alone = alone
	if err := g.datapath.SetPoolMembers(oracleMembers[0].Name, g.members()); err != nil {
		t.Fatal(err)
	}
}

func (g *rig) members() []model.PoolMember {
	if g.alone {
		return nil
	}
	return oracleMembers
}

// setSNAT gives the workloads their ranges, or takes them away.
func (g *rig) setSNAT(t testing.TB, on bool) {
	t.Helper()
	g.snat = on
	u := endpoint.Update{SNAT: g.ranges}
	if !on {
		u = endpoint.Update{}
		for _, s := range g.ranges {
			u.SNATRemoved = append(u.SNATRemoved, s.Key)
		}
	}
	if err := g.datapath.Update(u); err != nil {
		t.Fatal(err)
	}
}

// reset forgets all flows and datagrams, in both.
func (g *rig) reset(t testing.TB) {
	t.Helper()
	wipe[bpf.MuxFlowSet](t, g.datapath.tables.Flows)
	wipe[bpf.MuxFlowUsage](t, g.datapath.tables.VIPUsage)
	wipe[bpf.MuxFlowFilter](t, g.datapath.tables.FlowFilter)
	wipe[bpf.MuxDatagramSet](t, g.datapath.tables.Fragments)
	wipe[bpf.MuxOverlaySet](t, g.datapath.tables.NATSessions)
	g.restoreNATQuotas(t)
	for g.punts.reader.SetDeadline(time.Now()); ; { // what a difference left there
		if _, err := g.punts.Read(); err != nil {
			break
		}
	}
	g.mux = &oracle.Mux{
		Self: oracleMembers[0].Name, Members: g.members(),
		HashKey: g.settings.HashKey, Source4: g.settings.Source4, Source6: g.settings.Source6,
		Prefix4: g.settings.Prefix4, Prefix6: g.settings.Prefix6, GUE: g.settings.Encapsulation == pool.GUE,
		MTU: g.settings.MTU, MAC: testMAC, Hops: g.hops, Network: oracleNetwork(),
	}
	if g.snat {
		g.mux.SNAT = g.ranges
	}
	for _, endpoints := range [][]model.MuxEndpoint{g.before, g.after} {
		for _, e := range endpoints {
			g.mux.Set(e)
		}
	}
}

// wipe writes zeros to every row.
func wipe[row any](t testing.TB, table *ebpf.Map) {
	t.Helper()
	keys := make([]uint32, table.MaxEntries())
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := table.BatchUpdate(keys, make([]row, len(keys)), nil); err != nil {
		t.Fatal(err)
	}
}

// check gives the frame to both and says where they differ, if they do.
func (g *rig) check(t testing.TB, frame []byte) string {
	t.Helper()
	want := g.mux.Handle(frame)
	g.options.Data = frame
	g.options.DataOut = sized(g.options.DataOut, len(frame)+256)
	action, err := g.datapath.programs.Program.Run(&g.options)
	if err != nil {
		t.Fatalf("run program on %d bytes: %v", len(frame), err)
	}
	wanted := append([]string{want.Verdict}, want.Or...)
	at := slices.IndexFunc(wanted, func(verdict string) bool { return g.wasCounted(t, verdict) })
	if at < 0 {
		return fmt.Sprintf("want %s, and it was not counted\ncounted: %v\nbefore:  %v", wanted, verdicts(t, g.datapath), g.counted)
	}
	want.Verdict = wanted[at]
	g.counted[want.Verdict]++
	if want.Seen != nil {
		want.Seen(want.Verdict)
	}
	if wantAction := actionOf(want.Verdict); action != wantAction {
		return fmt.Sprintf("%s: action %d, want %d", want.Verdict, action, wantAction)
	}
	out := g.options.DataOut
	switch {
	case want.Verdict[:4] == "punt":
		return g.checkPunt(want)
	case action == xdpDrop:
	case want.Frame == nil && !bytes.Equal(frame, out):
		return fmt.Sprintf("%s changed the frame:\n got %x\nwant %x", want.Verdict, out, frame)
	case want.Frame != nil && !bytes.Equal(want.Frame, out):
		return fmt.Sprintf("%s:\n got %x\nwant %x", want.Verdict, out, want.Frame)
	}
	return ""
}

// wasCounted says whether the program has counted one more of the verdict than is known.
func (g *rig) wasCounted(t testing.TB, verdict string) bool {
	t.Helper()
	number, known := g.numbers[verdict]
	if !known {
		t.Fatalf("the program knows no verdict %s", verdict)
	}
	counter, err := abi.Counter(g.datapath.tables.Verdicts, number)
	if err != nil {
		t.Fatal(err)
	}
	return counter.Packets == g.counted[verdict]+1
}

func sized(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n, 4096)
	}
	return b[:n]
}

func actionOf(verdict string) uint32 {
	switch {
	case strings.HasPrefix(verdict, "pass_"):
		return xdpPass
	case strings.HasPrefix(verdict, "drop_"), strings.HasPrefix(verdict, "punt_"):
		return xdpDrop
	}
	return xdpTX
}

// checkPunt wants the frame in user space.
func (g *rig) checkPunt(want oracle.Outcome) string {
	g.punts.reader.SetDeadline(time.Now()) // it is there, or never
	got, err := g.punts.Read()
	if err != nil {
		return fmt.Sprintf("%s: %v", want.Verdict, err)
	}
	reason := map[string]PuntReason{"punt_fragment": PuntFragment, "punt_icmp": PuntError, "punt_split": PuntSplit}[want.Verdict]
	if got.Reason != reason || got.L3 != want.L3 || !bytes.Equal(got.Frame, want.Frame) {
		return fmt.Sprintf("%s with IP at %d:\n got %x\nwant %x\nreason %d, IP at %d", want.Verdict, want.L3, got.Frame, want.Frame, got.Reason, got.L3)
	}
	return ""
}

// differs says how the frames, one after the other from nothing, end in a difference; "" when not.
func (g *rig) differs(t testing.TB, frames [][]byte) string {
	g.reset(t)
	g.recount(t)
	for i, frame := range frames {
		if difference := g.check(t, frame); difference != "" {
			if i+1 < len(frames) {
				g.recount(t)
				continue // it is the last one's that is looked for
			}
			return difference
		}
	}
	return ""
}

// recount makes the oracle agree with what the program has counted so far.
func (g *rig) recount(t testing.TB) {
	g.counted = verdicts(t, g.datapath)
}

// minimiseTime bounds how long a smaller history and frame are looked for.
const minimiseTime = 30 * time.Second

// minimise reports the shortest history and the least frame that still differ, as far as time allows.
func (g *rig) minimise(t testing.TB, history [][]byte) string {
	end := time.Now().Add(minimiseTime)
	last := history[len(history)-1]
	before := history[:len(history)-1]
	if g.differs(t, [][]byte{last}) != "" {
		before = nil
	}
	for size := len(before); size > 0; size /= 2 {
		for at := 0; at+size <= len(before) && time.Now().Before(end); {
			kept := append(append([][]byte{}, before[:at]...), before[at+size:]...)
			if g.differs(t, append(kept, last)) != "" {
				before = kept
			} else {
				at += size
			}
		}
	}
	small := g.shrink(t, before, last, end)
	var report strings.Builder
	fmt.Fprintln(&report, g.differs(t, append(before, small)))
	for _, frame := range before {
		fmt.Fprintf(&report, "after %s\n", hex.EncodeToString(frame))
	}
	fmt.Fprintf(&report, "frame %s", hex.EncodeToString(small))
	return report.String()
}

// shrink shortens the frame and clears its bytes as far as it still differs, until the end.
func (g *rig) shrink(t testing.TB, before [][]byte, frame []byte, end time.Time) []byte {
	try := func(candidate []byte) bool {
		if len(candidate) < 14 || time.Now().After(end) || g.differs(t, append(before[:len(before):len(before)], candidate)) == "" {
			return false
		}
		frame = candidate
		return true
	}
	for cut := len(frame) / 2; cut > 0; cut /= 2 {
		for try(frame[:len(frame)-cut]) {
		}
	}
	for i := range frame {
		if frame[i] != 0 {
			cleared := bytes.Clone(frame)
			cleared[i] = 0
			try(cleared)
		}
	}
	return frame
}
