package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/progcache"
)

// The world of the packet tests: two muxes, two workloads of two families, three VIPs.
const (
	client4, client6 = "198.51.100.7:40000", "[2001:db8::7]:40000"
	vip4, vip6       = "203.0.113.10:80", "[2001:db8:1::10]:80"
	otherVIP4        = "203.0.113.11:80"
	allPorts4        = "203.0.113.12"

	native4, native6       = "10.1.0.5", "fd01::5"
	interface4, interface6 = "10.1.0.6", "fd01::6"
	down4                  = "10.1.0.7" // has a rule, but no interface
	backendPort            = 8080
	backendSlot            = 0x1234

	mux4, mux6         = "10.0.0.1", "fd00::1"
	uplinkIndex        = 7
	interfaceIndex     = 9
	uplinkMTU          = 1500
	cookieScaleOfTests = 10         // ticks of 8 ms
	clamped4, clamped6 = 1370, 1364 // of TestFor of package mss
	tcxNext            = ^uint32(0)
	tcxDrop            = uint32(2)
	tcxRedirect        = uint32(7)
	sizeOfSKB          = 192 // struct __sk_buff
	offsetOfGSOSegs    = 164
	offsetOfGSOSize    = 176
)

// rig is the programs and tables of the data plane, attached to nothing.
type rig struct {
	t testing.TB
	*Datapath
}

// loaded are programs and tables that tests use one after the other.
type loaded struct {
	bpf.AgentObjects
	programs []*ebpf.Program
	verdicts abi.Verdicts
}

func (l *loaded) Programs() []*ebpf.Program { return l.programs }

var loads progcache.Cache[*loaded]

// loadNew loads the programs, after changes have changed the spec.
func loadNew(t testing.TB, changes ...func(*ebpf.CollectionSpec)) *loaded {
	t.Helper()
	spec, err := bpf.LoadAgent()
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(spec)
	}
	l := &loaded{}
	if l.verdicts, err = abi.VerdictsOf(spec); err != nil {
		t.Fatal(err)
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v (these tests need root)", err)
	}
	defer collection.Close()
	for _, p := range collection.Programs {
		l.programs = append(l.programs, p)
	}
	if err := collection.Assign(&l.AgentObjects); err != nil {
		t.Fatal(err)
	}
	return l
}

// newRig takes programs with empty tables, or loads some of their own after changes have changed the spec,
// and fills the tables.
func newRig(t testing.TB, changes ...func(*ebpf.CollectionSpec)) *rig {
	t.Helper()
	var l *loaded
	if len(changes) == 0 {
		l = loads.Take(t, "", func() *loaded { return loadNew(t) })
	} else {
		l = loadNew(t, changes...)
		t.Cleanup(func() { l.Close() })
	}
	r := l.rig(t)
	r.fill()
	return r
}

func (l *loaded) rig(t testing.TB) *rig {
	d := newDatapath(Config{MaxRules: DefaultMaxRules}, nil)
	d.objects, d.verdicts = l.AgentObjects, l.verdicts
	return &rig{t: t, Datapath: d}
}

func (r *rig) fill() {
	r.t.Helper()
	var all []model.HostBackend
	for _, vip := range []string{vip4, vip6, otherVIP4} {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			all = append(all,
				rule(protocol, vip, native4, native4, native6), rule(protocol, vip, native6, native4, native6),
				rule(protocol, vip, interface4, interface4, interface6),
				rule(protocol, vip, interface6, interface4, interface6),
				rule(protocol, vip, down4, down4, "fd01::7"))
		}
	}
	everything := rule(model.TCP, allPorts4+":0", native4, native4, native6)
	everything.Backend = netip.AddrPortFrom(everything.Backend.Addr(), 0)
	all = append(all, everything, rule(model.TCP, allPorts4+":80", native4, native4, native6))
	workloads := map[bpf.AgentAddress]uint32{
		bpf.ToAddress(netip.MustParseAddr(native4)): 0, bpf.ToAddress(netip.MustParseAddr(native6)): 0,
		bpf.ToAddress(netip.MustParseAddr(interface4)): interfaceIndex,
		bpf.ToAddress(netip.MustParseAddr(interface6)): interfaceIndex,
	}
	err := errors.Join(
		r.Replace(all),
		r.SetMuxes([]netip.Prefix{
			netip.MustParsePrefix(mux4 + "/32"), netip.MustParsePrefix(mux6 + "/128"),
			netip.MustParsePrefix("10.2.0.0/24"), netip.MustParsePrefix("fd02::/64"),
		}),
		abi.WriteTable(r.objects.Workloads, workloads),
		r.changeSettings(func(s *bpf.AgentAgentSettings) {
			s.Uplink, s.Mtu, s.CookieScale = uplinkIndex, uplinkMTU, cookieScaleOfTests
			s.Address4, s.Address6 = bpf.ToAddress(netip.MustParseAddr(host4)), bpf.ToAddress(netip.MustParseAddr(host6))
		}))
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) changeSettings(change func(*bpf.AgentAgentSettings)) error {
	return bpf.ChangeSettings(&r.objects, change)
}

// rule sends a VIP's packets behind a tunnel address to the DIP of the VIP's family.
func rule(protocol model.Protocol, vip, tunnel, dip4, dip6 string) model.HostBackend {
	endpoint := netip.MustParseAddrPort(vip)
	dip := dip4
	if endpoint.Addr().Is6() {
		dip = dip6
	}
	return model.HostBackend{
		Endpoint: model.EndpointKey{VIP: endpoint.Addr(), Protocol: protocol, Port: endpoint.Port()},
		Tunnel:   netip.MustParseAddr(tunnel),
		Backend:  netip.AddrPortFrom(netip.MustParseAddr(dip), backendPort),
		Slot:     backendSlot, Cookies: protocol == model.TCP,
		ChainPeers: []netip.Addr{netip.MustParseAddr(peer4), netip.MustParseAddr(peer6)},
	}
}

func (r *rig) program(name string) *ebpf.Program {
	switch name {
	case "from_uplink":
		return r.objects.FromUplink
	case "to_uplink":
		return r.objects.ToUplink
	case "from_workload":
		return r.objects.FromWorkload
	}
	r.t.Fatalf("no program %q", name)
	return nil
}

// outcome is what a program made of a frame.
type outcome struct {
	verdict string
	counter model.Counter
	action  uint32
	frame   []byte
}

// toUs is the frame with the MAC of a test run's interface, loopback, where that of a packet of pkt stands.
func toUs(frame []byte) []byte {
	mac := pkt.UDP(client4, vip4).Destination
	if !bytes.HasPrefix(frame, mac[:]) {
		return frame
	}
	return append(make([]byte, len(mac)), frame[len(mac):]...)
}

// asSent puts the MAC of a frame that was sent as toUs back into what came out, wherever it went.
func asSent(frame, out []byte) {
	for _, mac := range [][]byte{out[:6], out[6:12]} {
		if bytes.Equal(mac, make([]byte, 6)) {
			copy(mac, frame[:6])
		}
	}
}

// run gives the frame to the program. It fails if not exactly one counter moved.
func (r *rig) run(program string, frame []byte, skb []byte) outcome {
	r.t.Helper()
	before := r.verdicts()
	options := &ebpf.RunOptions{Data: toUs(frame), DataOut: make([]byte, len(frame)+256)}
	if skb != nil {
		options.Context = skb
	}
	action, err := r.program(program).Run(options)
	if err != nil {
		r.t.Fatalf("run %s: %v", program, err)
	}
	result := outcome{action: action, frame: options.DataOut}
	asSent(frame, result.frame)
	for name, after := range r.verdicts() {
		moved := model.Counter{
			Packets: after.Packets - before[name].Packets, Bytes: after.Bytes - before[name].Bytes,
		}
		if moved == (model.Counter{}) {
			continue
		}
		if result.verdict != "" {
			r.t.Errorf("%s and %s both counted", result.verdict, name)
		}
		result.verdict, result.counter = name, moved
	}
	return result
}

func (r *rig) verdicts() map[string]model.Counter {
	r.t.Helper()
	counters, err := r.Verdicts()
	if err != nil {
		r.t.Fatal(err)
	}
	return maps.Clone(counters)
}

// gso is the context of a buffer that holds segments.
func gso(segments, size uint32) []byte {
	skb := make([]byte, sizeOfSKB)
	binary.NativeEndian.PutUint32(skb[offsetOfGSOSegs:], segments)
	binary.NativeEndian.PutUint32(skb[offsetOfGSOSize:], size)
	return skb
}

// outer is the header that a mux puts before a packet to a tunnel address.
func outer(tunnel string) pkt.IP {
	to := netip.MustParseAddr(tunnel)
	from := mux4
	if to.Is6() {
		from = mux6
	}
	return pkt.IP{
		Source: netip.MustParseAddr(from), Destination: to, TTL: 64, DontFragment: to.Is4(),
	}
}

// delivered is what a workload must get of an encapsulated packet.
func delivered(in pkt.Packet, dip string, changes ...func(*pkt.Packet)) pkt.Packet {
	out := in.With(func(p *pkt.Packet) {
		p.Outer = nil
		p.IP.Destination = netip.MustParseAddr(dip)
		p.DestinationPort = backendPort
	})
	return out.With(changes...)
}

// reply is what a workload answers to what was delivered.
func replyTo(in pkt.Packet, flags pkt.Flags, changes ...func(*pkt.Packet)) pkt.Packet {
	out := in.With(func(p *pkt.Packet) {
		p.IP.Source, p.IP.Destination = p.IP.Destination, p.IP.Source
		p.SourcePort, p.DestinationPort = p.DestinationPort, p.SourcePort
		p.Flags, p.Options, p.Padding = flags, nil, 0
	})
	return out.With(changes...)
}

// from makes a packet come from another address and port.
func from(addrPort string) func(*pkt.Packet) {
	source := netip.MustParseAddrPort(addrPort)
	return func(p *pkt.Packet) { p.IP.Source, p.SourcePort = source.Addr(), source.Port() }
}
