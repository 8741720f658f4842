package mux

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/datapath/mux/trace"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/progcache"
)

const testMTU = 1500

var (
	// Small tables: a test that leaks rows runs out of them.
	testSizes = bpf.Sizes{Endpoints: 64, BucketRows: 256, Backends: 1024, FlowSets: 1024, FlowLimit: 2048, SNATVIPs: 4, NATSets: 64}

	source4, source6 = netip.MustParseAddr("10.255.0.1"), netip.MustParseAddr("fd00:ff::1")

	// testMAC is the interface's: what frames are to.
	testMAC = [6]byte{2, 0, 0, 0, 0, 2}

	// muxHop leads to another mux of the settings: in these tests all have the same MAC.
	muxHop = model.NextHop{Source: [6]byte{2, 0xaa, 0, 0, 0, 1}, Destination: testMAC}

	testHop = model.NextHop{
		Source:      [6]byte{2, 0xaa, 0, 0, 0, 1},
		Destination: [6]byte{2, 0xbb, 0, 0, 0, 2},
	}
)

// loaded are programs and tables that tests use one after the other.
type loaded struct {
	bpf.Objects
	explains *trace.Program // nil until a test has explained a packet
}

func (l *loaded) Programs() []*ebpf.Program {
	all := []*ebpf.Program{l.Program, l.Clock}
	if l.explains != nil {
		all = append(all, l.explains.Program)
	}
	return all
}

// loads are kept by their sizes.
var loads progcache.Cache[*loaded]

func loadNew(t testing.TB, sizes bpf.Sizes) *loaded {
	t.Helper()
	spec, err := sizes.Spec()
	if err != nil {
		t.Fatal(err)
	}
	o, err := bpf.Load(spec, nil)
	if err != nil {
		t.Fatalf("%v (the packet tests need root)", err)
	}
	return &loaded{Objects: *o}
}

// newUnattached is a data plane whose program runs only by the kernel's test run.
func newUnattached(t testing.TB, sizes bpf.Sizes) *Datapath {
	t.Helper()
	l := loads.Take(t, fmt.Sprintf("%+v", sizes), func() *loaded { return loadNew(t, sizes) })
	return l.datapath(t, sizes)
}

// datapath is a new one with these programs and tables, which are not closed with it.
func (l *loaded) datapath(t testing.TB, sizes bpf.Sizes) *Datapath {
	d := newDatapath(sizes, slog.New(slog.DiscardHandler))
	d.tables, d.programs = l.Tables, l.Objects.Programs
	d.Swap(l.explains)
	t.Cleanup(func() {
		l.explains = d.Swap(nil)
		d.tables, d.programs = bpf.Tables{}, bpf.Programs{}
		_ = d.Close()
	})
	return d
}

func testSettings() pool.Settings {
	key := flowhash.Key{}
	rand.NewChaCha8([32]byte{}).Read(key[:]) // words in a progression would make flows collide
	return pool.Settings{HashKey: key, Source4: source4, Source6: source6, MTU: testMTU, MAC: testMAC, Encapsulation: pool.IPIP}
}

// newFilled has a pool, the endpoints given, and a resolved hop for every tunnel.
func newFilled(t testing.TB, endpoints ...model.MuxEndpoint) *Datapath {
	t.Helper()
	return newFilledOf(t, testSizes, endpoints...)
}

func newFilledOf(t testing.TB, sizes bpf.Sizes, endpoints ...model.MuxEndpoint) *Datapath {
	t.Helper()
	d := newUnattached(t, sizes)
	fillWith(t, d, endpoints...)
	return d
}

func fillWith(t testing.TB, d *Datapath, endpoints ...model.MuxEndpoint) {
	t.Helper()
	if err := d.SetSettings(testSettings()); err != nil {
		t.Fatal(err)
	}
	if err := d.Replace(endpoints); err != nil {
		t.Fatal(err)
	}
	resolve(t, d)
}

func resolve(t testing.TB, d *Datapath) {
	t.Helper()
	hops := map[netip.Addr]model.NextHop{}
	for _, tunnel := range d.Tunnels() {
		hops[tunnel] = testHop
	}
	if err := d.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
}

// newEndpoint spreads buckets evenly over the tunnels, whose slots are 1, 2, 3, ...
func newEndpoint(key string, protocol model.Protocol, tunnels ...string) model.MuxEndpoint {
	addr := netip.MustParseAddrPort(key)
	e := model.MuxEndpoint{
		Key: model.EndpointKey{VIP: addr.Addr(), Protocol: protocol, Port: addr.Port()},
	}
	for i, tunnel := range tunnels {
		e.Backends = append(e.Backends, model.MuxBackend{
			Slot: model.Slot(i + 1), Tunnel: netip.MustParseAddr(tunnel),
		})
	}
	for i := 0; len(tunnels) > 0 && i < 256; i++ {
		e.Buckets = append(e.Buckets, model.Slot(i%len(tunnels)+1))
	}
	return e
}

// XDP's actions, as the program returns them.
const (
	xdpDrop = 1
	xdpPass = 2
	xdpTX   = 3
)

// run gives the frame to the program and returns the action and the frame after it.
func run(t testing.TB, d *Datapath, frame []byte) (action uint32, out []byte) {
	t.Helper()
	return runWithMeta(t, d, frame, 0)
}

// xdpMD is the context of a test run: struct xdp_md.
type xdpMD struct {
	Data, DataEnd, DataMeta, Ingress, RxQueue, Egress uint32
}

// runWithMeta puts meta bytes of driver's metadata before the frame, which use up headroom.
func runWithMeta(t testing.TB, d *Datapath, frame []byte, meta int) (action uint32, out []byte) {
	t.Helper()
	options := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+meta+256)}
	if meta > 0 {
		options.Data = append(make([]byte, meta), frame...)
		options.Context = xdpMD{Data: uint32(meta), DataEnd: uint32(meta + len(frame))}
	}
	action, err := d.programs.Program.Run(options)
	if err != nil {
		t.Fatalf("run program on %d bytes: %v", len(frame), err)
	}
	return action, options.DataOut
}

// verdicts reads the packet counters that are not zero.
func verdicts(t testing.TB, d *Datapath) map[string]uint64 {
	t.Helper()
	all, err := d.Verdicts()
	if err != nil {
		t.Fatal(err)
	}
	moved := map[string]uint64{}
	for name, counter := range all {
		if counter.Packets != 0 {
			moved[name] = counter.Packets
		}
	}
	return moved
}

// difference is what of after is more than in before.
func difference(before, after map[string]uint64) map[string]uint64 {
	more := map[string]uint64{}
	for name, n := range after {
		if n != before[name] {
			more[name] = n - before[name]
		}
	}
	return more
}

// looked are verdicts as if packets asked the flow table each time: which of them need not, the filter in front of it says,
// until its epoch ends.
func looked(verdicts map[string]uint64) map[string]uint64 {
	if n := verdicts["forward_known"]; n > 0 {
		verdicts["forward_flow"] += n
		delete(verdicts, "forward_known")
	}
	return verdicts
}

func randomTuple(seed uint32, i int) netip.AddrPort {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], seed+uint32(i)*2654435761)
	b[0] = 1 + b[0]%120 // a host's
	return netip.AddrPortFrom(netip.AddrFrom4(b), uint16(1024+i))
}
