package xdp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/drivertest"
	"github.com/weirlb/weir/internal/hardware/xdp/bpf"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/switchlab"
)

const seed = 7

// background is the verdict of groups' frames.
const background = "pass_not_routed"

const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpRedirect = 4
)

// TestMain takes the programs from a file when it is told so: test/mutate has some with a fault.
func TestMain(m *testing.M) {
	if path := os.Getenv("WEIR_TEST_OBJECT"); path != "" {
		object, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		bpf.UseObject(object)
	}
	os.Exit(m.Run())
}

// world is a switch with a VIP for each pair of families, and its program for test runs.
type world struct {
	*testing.T
	lab      *switchlab.Lab
	driver   *Driver
	verdicts abi.Verdicts
	counted  map[string]bool // verdicts that were seen
	port     uint32
}

var (
	vip44, vip46 = netip.MustParseAddr("203.0.113.4"), netip.MustParseAddr("203.0.113.6")
	vip64, vip66 = netip.MustParseAddr("2001:db8:7::4"), netip.MustParseAddr("2001:db8:7::6")
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, lab: switchlab.New(t, "hwpacket"), counted: map[string]bool{}}
	w.do(func() (err error) {
		w.driver, err = New(Config{Seed: seed, Configure: true})
		return err
	})
	t.Cleanup(func() { w.must(w.driver.Close()) })
	index, err := w.lab.Switch.Index(switchlab.ClientPort)
	w.must(err)
	w.port = uint32(index)
	spec, err := bpf.LoadSwitch()
	w.must(err)
	w.verdicts, err = abi.VerdictsOf(spec)
	w.must(err)
	for vip, v6 := range map[netip.Addr]bool{vip44: false, vip46: true, vip64: false, vip66: true} {
		w.program(vip, v6, 1, 2, 3)
	}
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) do(fn func() error) {
	w.Helper()
	w.must(w.lab.Switch.Do(fn))
}

func (w *world) program(vip netip.Addr, v6 bool, members ...int) hardware.Entry {
	w.Helper()
	e := hardware.Entry{VIP: vip, Source: drivertest.Source(v6)}
	for _, n := range members {
		e.Members = append(e.Members, hardware.Member{Tunnel: drivertest.Tunnel(v6, n), Entries: uint32(n)})
	}
	w.must(w.driver.Program(w.Context(), e))
	return e
}

// run gives the switch a frame. It asserts that one verdict was counted, once, with the frame's bytes.
func (w *world) run(frame []byte, want string) (action uint32, out []byte) {
	w.Helper()
	before, err := w.verdicts.Read(w.driver.objects.Verdicts)
	w.must(err)
	out = make([]byte, len(frame)+256)
	w.do(func() (err error) {
		options := &ebpf.RunOptions{Data: frame, DataOut: out, Context: struct{ Data, DataEnd, DataMeta, Port, Queue, Egress uint32 }{DataEnd: uint32(len(frame)), Port: w.port}}
		action, err = w.driver.objects.SwitchPort.Run(options)
		out = options.DataOut
		return err
	})
	after, err := w.verdicts.Read(w.driver.objects.Verdicts)
	w.must(err)
	for name, counter := range after {
		packets, octets := counter.Packets-before[name].Packets, counter.Bytes-before[name].Bytes
		switch {
		case name == background: // the kernel's own frames come to the ports, too
		case name == want && (packets != 1 || octets != uint64(len(frame))):
			w.Errorf("verdict %s counted %d packets of %d bytes, want one of %d", name, packets, octets, len(frame))
		case name != want && packets != 0:
			w.Errorf("verdict %s, want %s", name, want)
		}
	}
	w.counted[want] = true
	return action, out
}

// passes asserts that a frame is left as it is.
func (w *world) passes(frame []byte, verdict string) {
	w.Helper()
	action, out := w.run(frame, verdict)
	if action != xdpPass || !bytes.Equal(out, frame) {
		w.Errorf("action %d, want that the frame passes as it is", action)
	}
}

// forwards asserts that a frame goes into a tunnel of its VIP, with right checksums, and returns which.
func (w *world) forwards(p pkt.Packet) netip.Addr {
	w.Helper()
	action, out := w.run(p.Frame(), "forward")
	if action != xdpRedirect {
		w.Fatalf("action %d, want that the packet is redirected", action)
	}
	return w.inside(out, p, w.mac(true), w.mac(false))
}

func (w *world) mac(fabric bool) (mac pkt.MAC) {
	ns, name := w.lab.Switch, switchlab.FabricPort
	if fabric {
		ns, name = w.lab.Fabric, "eth0"
	}
	address, err := ns.MAC(name)
	w.must(err)
	return pkt.MAC(address)
}

func (w *world) inside(out []byte, p pkt.Packet, destination, source pkt.MAC) netip.Addr {
	w.Helper()
	got, err := pkt.Decode(out)
	w.must(err)
	if got.Outer == nil {
		w.Fatal("the packet has no outer header")
	}
	e, ok := w.driver.tables.inventory.Get(p.IP.Destination)
	if !ok {
		w.Fatalf("%s is no VIP", p.IP.Destination)
	}
	if got.Outer.Source != e.Source || !slices.ContainsFunc(e.Members, func(m hardware.Member) bool { return m.Tunnel == got.Outer.Destination }) {
		w.Errorf("tunnel from %s to %s", got.Outer.Source, got.Outer.Destination)
	}
	if got.Outer.TTL != 64 || got.Outer.TOS != p.IP.TOS || got.Outer.IsFragment() {
		w.Errorf("the outer header is %+v", *got.Outer)
	}
	if got.Destination != destination || got.Source != source {
		w.Errorf("MACs are %x and %x, want %x and %x", got.Destination, got.Source, destination, source)
	}
	// Inside is what came, one hop later.
	want := p.With(func(p *pkt.Packet) {
		p.IP.TTL--
		p.Source, p.Destination = source, destination
	})
	at := want.L3() + 40
	if got.Outer.Source.Is4() {
		at = want.L3() + 20
	}
	if inner, frame := out[at:], want.Frame()[want.L3():]; !bytes.Equal(inner, frame) {
		w.Errorf("the inner packet is\n%x, want\n%x", inner, frame)
	}
	return got.Outer.Destination
}

// packets is one of each kind that a switch forwards, to a VIP.
func packets(vip netip.Addr) map[string]pkt.Packet {
	client := "198.51.100.7"
	if vip.Is6() {
		client = "2001:db8:c::7"
	}
	from, to := netip.AddrPortFrom(netip.MustParseAddr(client), 40000).String(), netip.AddrPortFrom(vip, 80).String()
	return map[string]pkt.Packet{
		"SYN":            pkt.TCP(from, to, pkt.SYN, pkt.MSS(1460)),
		"segment":        pkt.TCP(from, to, pkt.ACK, pkt.Payload(make([]byte, 1200))),
		"datagram":       pkt.UDP(from, to, pkt.TOS(0xb9)),
		"empty datagram": pkt.UDP(from, to, pkt.Payload(nil)),
		"padded":         pkt.UDP(from, to, pkt.Payload(nil), pkt.TOS(1)),
		"echo":           pkt.ICMP(client, vip.String()),
		"last hop but 1": pkt.UDP(from, to, func(p *pkt.Packet) { p.IP.TTL = 2 }),
		"fragment":       pkt.UDP(from, to, pkt.Fragment(0, true), pkt.Payload(make([]byte, 80))),
		"later fragment": pkt.UDP(from, to, pkt.Fragment(11, false), pkt.Payload(make([]byte, 80))),
	}
}

func TestPackets(t *testing.T) {
	w := newWorld(t)
	w.forwarded()
	w.passed()
	w.routed()
	w.tips()
	for _, name := range w.verdicts {
		if !w.counted[name] && name != "drop_no_headroom" {
			t.Errorf("no packet met verdict %s", name)
		}
	}
	counters, err := w.driver.Counters()
	w.must(err)
	for _, vip := range []netip.Addr{vip44, vip46, vip64, vip66} {
		if counters[vip].Packets == 0 {
			t.Errorf("no packet was counted for %s", vip)
		}
	}
}

func (w *world) forwarded() {
	for _, vip := range []netip.Addr{vip44, vip46, vip64, vip66} {
		tunnels := map[string]netip.Addr{}
		for name, p := range packets(vip) {
			tunnels[name] = w.forwards(p)
			if again := w.forwards(p); again != tunnels[name] {
				w.Errorf("%s to %s went to %s, then to %s", name, vip, tunnels[name], again)
			}
			if want := w.expected(p); tunnels[name] != want {
				w.Errorf("%s to %s went to %s, the CRC says %s", name, vip, tunnels[name], want)
			}
		}
		if tunnels["fragment"] != tunnels["later fragment"] {
			w.Errorf("fragments to %s went to %s and %s", vip, tunnels["fragment"], tunnels["later fragment"])
		}
	}
	w.forwards(pkt.UDP("198.51.100.7:4000", "203.0.113.4:80", pkt.IPOptions(8)))
}

// expected computes the member by the CRC's definition, a bit at a time.
func (w *world) expected(p pkt.Packet) netip.Addr {
	vendor := newVendor(rand.New(rand.NewPCG(seed, 0)))
	polynomial := vendor.Table[0][128]
	fields := append(folded(p.IP.Source), folded(p.IP.Destination)...)
	ports, protocol := make([]byte, 4), byte(p.Protocol)
	switch {
	case p.IP.IsFragment():
		if !p.IP.Source.Is4() {
			protocol = 44 // the header that stands first
		}
	case p.Protocol == layers.IPProtocolTCP || p.Protocol == layers.IPProtocolUDP:
		ports = []byte{byte(p.SourcePort >> 8), byte(p.SourcePort), byte(p.DestinationPort >> 8), byte(p.DestinationPort)}
	}
	sum := vendor.Seed
	for _, b := range append(append(fields, ports...), protocol) {
		sum ^= uint32(b)
		for range 8 {
			if sum&1 == 1 {
				sum = sum>>1 ^ polynomial
			} else {
				sum >>= 1
			}
		}
	}
	e, _ := w.driver.tables.inventory.Get(p.IP.Destination)
	at := (sum >> vendor.Offset & 0xffff) * e.Rows() >> 16
	for _, m := range e.Members {
		if at < m.Entries {
			return m.Tunnel
		}
		at -= m.Entries
	}
	return netip.Addr{}
}

// folded is an address, IPv4 mapped into IPv6, folded into four bytes.
func folded(a netip.Addr) []byte {
	all, four := a.As16(), make([]byte, 4)
	for i, b := range all {
		four[i%4] ^= b
	}
	return four
}

func (w *world) passed() {
	datagram := packets(vip44)["datagram"]
	w.passes(datagram.With(func(p *pkt.Packet) { p.IP.Destination = netip.MustParseAddr("203.0.113.99") }).Frame(), "pass_no_host")
	w.passes(datagram.With(pkt.VLANs(7)).Frame(), "pass_not_routed")
	w.passes(datagram.With(func(p *pkt.Packet) { p.Destination = pkt.MAC{1, 0, 0x5e, 0, 0, 1} }).Frame(), "pass_not_routed")
	for _, vip := range []netip.Addr{vip44, vip66} {
		p := packets(vip)["datagram"]
		for _, ttl := range []uint8{0, 1} {
			w.passes(p.With(func(p *pkt.Packet) { p.IP.TTL = ttl }).Frame(), "pass_ttl")
		}
		for cut := 15; cut < len(p.Frame()); cut += 3 { // shorter than its header says
			w.passes(p.Frame()[:cut], "pass_malformed")
		}
		short := p.Frame()
		short[p.L3()] = 0x31 // no version of IP
		w.passes(short, "pass_malformed")
	}
	w.passes(append(datagram.Frame()[:12], 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1), "pass_not_routed") // ARP
}

// routed holds the switch to what the kernel's routes say of a tunnel.
func (w *world) routed() {
	e := w.program(vip44, false, 1)
	p := packets(vip44)["segment"]
	w.forwards(p)
	e.Members[0].Tunnel = netip.MustParseAddr("10.200.0.1")
	w.must(w.driver.Program(w.Context(), e))
	w.passes(p.Frame(), "pass_no_route")
	e.Members[0].Tunnel = netip.MustParseAddr("10.66.0.77") // on the link, and nobody knows it
	w.must(w.driver.Program(w.Context(), e))
	action, out := w.run(p.Frame(), "forward_neighbor")
	if action != xdpPass {
		w.Errorf("action %d, want that the kernel gets the packet", action)
	}
	w.inside(out, p, p.Destination, p.Source)
	w.program(vip44, false, 1)
	for size, v6 := range map[int]bool{1480: false, 1460: true} {
		vip := vip44
		if v6 {
			vip = vip46
		}
		fits := packets(vip)["datagram"].With(pkt.Payload(make([]byte, size-28)))
		w.forwards(fits)
		action, _ := w.run(fits.With(pkt.Payload(make([]byte, size-27))).Frame(), "drop_too_big")
		if action != xdpDrop {
			w.Errorf("action %d for a packet that is too big, want that it is dropped", action)
		}
	}
}
