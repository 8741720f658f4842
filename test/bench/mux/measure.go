package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/pkt"
)

const (
	wantTurns = 41

	// knownShare is the least part of a class's packets that must be of flows that the mux remembers: a set of the flow
	// table has room for six, and hardly any has more.
	knownShare = 0.995
)

// XDP's actions.
const (
	xdpPass = 2
	xdpTX   = 3
)

// class is a kind of packets and what must become of them. The first byte of the source tells
// the classes' flows apart.
type class struct {
	name     string
	packet   pkt.Packet
	vxlan    *pkt.VXLAN  // that the packet is in; nil: none
	opens    *pkt.Packet // the SYN of its connections, which need a handshake with full NAT; nil: they need none
	program  string      // of the harness; empty: the mux
	beside   string      // the class that it is compared with; empty: the floor
	empty    string      // the class of the same harness without a program, which a second ratio is less; empty: there is no such ratio
	cookieAt uint32      // offset of the byte that names the backend
	gue      bool        // in a pool that encapsulates in GUE
	snat     bool        // on a mux with source NAT
	action   uint32
	known    bool              // all of its flows are to be remembered
	verdicts map[string]uint64 // of its bursts, where known
	bursts   []burst           // one of each turn

	run      *ebpf.Program
	cookie   *ebpf.Variable
	repeats  *ebpf.Variable
	filter   *ebpf.Map
	template *ebpf.Variable // of a harness that writes each frame anew; else nil
	datapath *mux.Datapath

	handshake *ebpf.Program // of connections with full NAT
}

// burst is packets of a class, one after the other.
type burst struct {
	ns    float64 // of a packet
	quiet bool    // the core was, before and after
}

// measurement is of packets.
type measurement struct {
	class  string // these, with commas between them; empty: all
	burst  int    // packets
	budget time.Duration
}

const (
	floorClass = "floor"
	passClass  = "parse-and-pass"

	bodyAt = 120 // of a byte of the payload, where a cookie does no harm
)

func classes(of family) []class {
	from := func(n int) string {
		if of == v6 {
			return fmt.Sprintf("[2001:db8::%x00:0]:40000", n)
		}
		return fmt.Sprintf("%d.0.0.0:40000", n)
	}
	vip, own, snat := "203.0.113.0", "192.0.2.1:179", snatVIPs[of]+":40000"
	if of == v6 {
		vip, own, snat = "[2001:db8:1::]", "[2001:db8::1]:179", "["+snatVIPs[of]+"]:40000"
	}
	at := func(port uint16) string { return fmt.Sprintf("%s:%d", vip, port) }
	body := pkt.Payload(make([]byte, 100))
	tcp := func(n int, port uint16, changes ...func(*pkt.Packet)) pkt.Packet {
		return pkt.TCP(from(n), at(port), pkt.ACK, append(changes, body)...)
	}
	answer := pkt.TCP(from(23), snat, pkt.ACK, timestamps(2), body)
	aligned, last := tcp(21, portCookies, timestamps(2)), tcp(22, portCookies, timestamps(30))
	tagged := tcp(29, portCookies, timestamps(2), pkt.VLANs(7))
	listed, limited := tcp(24, portListed, timestamps(2)), tcp(25, portLimited, timestamps(2))
	all := append(networkClasses(of), multipathClasses(from, at(portCookies))...)
	return append(all, []class{
		{name: floorClass, packet: tcp(10, portCookies), program: benchProgBenchFloor, action: xdpTX},
		{name: passClass, packet: pkt.TCP(from(15), own, pkt.ACK, body), program: benchProgBenchPass, action: xdpPass},
		{name: "harness", packet: tcp(10, portCookies), program: benchProgBenchEmpty, action: xdpPass},
		{name: "tcp-cookie", packet: aligned, cookieAt: uint32(aligned.L4()) + 20 + 11, action: xdpTX},
		{name: "tcp-cookie-tagged", packet: tagged, program: benchProgBenchTagged, cookieAt: uint32(tagged.L4()) + 20 + 11, action: xdpTX},
		{name: "tcp-cookie-last", packet: last, cookieAt: uint32(last.L4()) + 20 + 39, action: xdpTX},
		{name: "tcp-syn", packet: pkt.TCP(from(12), at(portCookies), pkt.SYN, body), action: xdpTX},
		{name: "floor-syn", packet: linuxSYN(from(27), at(portCookies)), program: benchProgBenchSynFloor, action: xdpTX},
		{name: "harness-syn", packet: linuxSYN(from(27), at(portCookies)), program: benchProgBenchSynEmpty, action: xdpPass},
		{name: "tcp-syn-cookie", packet: linuxSYN(from(26), at(portAnswers)), program: benchProgBenchSyn, action: xdpTX},
		{name: "tcp-syn-cookie-flooded", packet: linuxSYN(from(28), at(portFlooded)), program: benchProgBenchSyn, action: xdpTX},
		{name: "udp-known", packet: pkt.UDP(from(13), at(portCookies), body), known: true, action: xdpTX},
		{name: "tcp-known", packet: tcp(16, portCookies), known: true, action: xdpTX},
		{name: "chained", packet: tcp(17, portChained), action: xdpTX},
		{name: "tcp-cookie-gue", packet: aligned, cookieAt: uint32(aligned.L4()) + 20 + 11, gue: true, action: xdpTX},
		// The upper byte of the port stands for a cookie: so ports of many ranges take turns.
		{name: "snat-return", packet: answer, cookieAt: uint32(answer.L4()) + 2, snat: true, action: xdpTX},
		{name: "tcp-cookie-listed", packet: listed, cookieAt: uint32(listed.L4()) + 20 + 11, action: xdpTX},
		{name: "tcp-cookie-limited", packet: limited, cookieAt: uint32(limited.L4()) + 20 + 11, action: xdpTX},
		{name: "not-for-us", packet: pkt.TCP(from(15), own, pkt.ACK, body), beside: passClass, action: xdpPass},
		{name: "not-for-us-snat", packet: pkt.TCP(from(15), own, pkt.ACK, body), beside: passClass, snat: true, action: xdpPass},
	}...)
}

// frame is the packet as it comes.
func (k *class) frame() []byte {
	if k.vxlan != nil {
		return k.vxlan.Frame(k.packet)
	}
	return k.packet.Frame()
}

// linuxSYN is a SYN as Linux sends it: its answer is as long.
func linuxSYN(from, to string) pkt.Packet {
	return pkt.TCP(from, to, pkt.SYN, pkt.Payload(nil), pkt.MSS(1460), pkt.TCPOptions(
		layers.TCPOption{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2},
	), pkt.Timestamps(1, 0), pkt.NOP(1), pkt.TCPOptions(
		layers.TCPOption{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{7}},
	))
}

// restore tells the harness what it writes before each packet.
func (k *class) restore() error {
	if err := k.cookie.Set(cmp.Or(k.cookieAt, bodyAt)); err != nil {
		return fmt.Errorf("say where the cookie is: %w", err)
	}
	if k.template == nil {
		return nil
	}
	frame := make([]byte, k.template.Size())
	copy(frame, k.frame())
	if err := k.template.Set(frame); err != nil {
		return fmt.Errorf("say what the frame is: %w", err)
	}
	return nil
}

// timestamps are TCP's option behind so many bytes of padding.
func timestamps(padding int) func(*pkt.Packet) {
	var options []layers.TCPOption
	for range padding {
		options = append(options, layers.TCPOption{OptionType: layers.TCPOptionKindNop, OptionLength: 1})
	}
	return pkt.TCPOptions(append(options, layers.TCPOption{
		OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8),
	})...)
}

// measure times all classes, or some, for one family and number of flows, and what they are compared with. Their bursts take
// turns, each turn begins with the next class, and ratios are of bursts of one turn: what slows one slows the others.
func (w *world) measure(c *core, of family, flows int, m measurement) ([]result, error) {
	if err := endSessions(w.datapath); err != nil {
		return nil, err
	}
	if err := w.verify(of); err != nil {
		return nil, err
	}
	h, err := w.load(of, flows, false)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	deadline := time.Now().Add(m.budget)
	all := classes(of)
	if m.class != "" {
		if all, err = alone(all, m.class); err != nil {
			return nil, err
		}
	}
	for i := range all {
		if err := h.prepare(&all[i], w.datapath); err != nil {
			return nil, err
		}
		if all[i].opens != nil {
			if err := all[i].open(flows); err != nil {
				return nil, err
			}
		}
		if err := all[i].begin(); err != nil {
			return nil, err
		}
		if err := errors.Join(all[i].warm(flows), all[i].set(false)); err != nil {
			return nil, err
		}
	}
	for turn := 0; turn < wantTurns && (turn == 0 || time.Now().Before(deadline)); turn++ {
		for i := range all {
			if err := all[(turn+i)%len(all)].measureOnce(c, flows, m.burst); err != nil {
				return nil, err
			}
		}
	}
	for i := range all {
		if err := all[i].checkVerdicts(); err != nil {
			return nil, err
		}
	}
	return summarise(all, of, flows), nil
}

// warm has each flow send two packets in a row: from here on the flow table remembers those that it should. If they came
// apart, flows of a set could evict one another before they are seen twice. The filter in front of the table is emptied
// again and again, for behind the bits of others a part of the flows would be remembered some epochs later.
func (k *class) warm(flows int) (err error) {
	const chunk = 20_000
	if err := k.repeats.Set(uint32(2)); err != nil {
		return fmt.Errorf("have flows send twice: %w", err)
	}
	for left := 2*flows + 1000; left > 0 && err == nil; left -= chunk {
		if err = k.emptyFilter(); err == nil {
			_, err = k.time(min(left, chunk))
		}
	}
	return errors.Join(err, k.repeats.Set(uint32(1)))
}

// emptyFilter has no flow have a bit.
func (k *class) emptyFilter() error {
	if err := k.filter.Put(uint32(0), make([]byte, k.filter.ValueSize())); err != nil {
		return fmt.Errorf("empty the filter in front of the flow table: %w", err)
	}
	return nil
}

// alone leaves the classes named, with commas between them, what they are compared with, and the floor.
func alone(all []class, wanted string) ([]class, error) {
	var names []string
	for i := range all {
		names = append(names, all[i].name)
	}
	stay := []string{floorClass}
	for name := range strings.SplitSeq(wanted, ",") {
		at := slices.Index(names, name)
		if at < 0 {
			return nil, fmt.Errorf("there is no class %q, but %s", name, strings.Join(names, ", "))
		}
		stay = append(stay, name, all[at].beside, all[at].empty)
	}
	return slices.DeleteFunc(all, func(k class) bool { return !slices.Contains(stay, k.name) }), nil
}

// besides is the class that k is compared with.
func (k *class) besides(all []class) *class { return named(all, cmp.Or(k.beside, floorClass)) }

func named(all []class, name string) *class {
	return &all[slices.IndexFunc(all, func(c class) bool { return c.name == name })]
}

// measureOnce takes a burst. Flows that are to be known send once before it, and are alone in the filter in front of the flow
// table: with the bursts of other classes between, they would come less often than in its epochs, and share it.
func (k *class) measureOnce(c *core, flows, packets int) error {
	if k.known {
		if err := k.emptyFilter(); err != nil {
			return err
		}
		if _, err := k.burst(flows); err != nil {
			return err
		}
	}
	before, err := k.datapath.Verdicts()
	if err != nil {
		return err
	}
	quiet := c.quiet()
	took, err := k.burst(packets)
	if err != nil {
		return err
	}
	k.bursts = append(k.bursts, burst{ns: float64(took.Nanoseconds()), quiet: quiet && c.quiet()})
	if !k.known {
		return nil
	}
	after, err := k.datapath.Verdicts()
	if err != nil {
		return err
	}
	if k.verdicts == nil {
		k.verdicts = map[string]uint64{}
	}
	for name, counter := range after {
		if n := counter.Packets - before[name].Packets; n > 0 {
			k.verdicts[name] += n
		}
	}
	return nil
}

// checkVerdicts wants packets of flows that are to be remembered to be known.
func (k *class) checkVerdicts() error {
	var all uint64
	for _, n := range k.verdicts {
		all += n
	}
	known := k.verdicts["forward_flow"] + k.verdicts["forward_known"]
	if k.known && float64(known) < knownShare*float64(all) {
		return fmt.Errorf("of %d packets of %s, %d are of flows that the mux knows, want %.1f %%: %v", all, k.name, known, 100*knownShare, k.verdicts)
	}
	return nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func (k *class) burst(packets int) (time.Duration, error) {
	if err := k.begin(); err != nil {
		return 0, err
	}
	took, err := k.time(packets)
	if err != nil {
		return 0, err
	}
	return took, k.set(false)
}

// begin has mux and harness be what the class needs.
func (k *class) begin() error {
	if err := k.restore(); err != nil {
		return err
	}
	return k.set(true)
}

func (k *class) time(packets int) (time.Duration, error) {
	action, took, err := k.run.Benchmark(k.frame(), packets, nil)
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", k.name, err)
	}
	if action != k.action {
		return 0, fmt.Errorf("run %s: action %d, want %d", k.name, action, k.action)
	}
	return took, nil
}

// set brings the mux to what the class needs, or back.
func (k *class) set(up bool) error {
	if k.gue {
		if err := encapsulateInGUE(k.datapath, up); err != nil {
			return err
		}
	}
	if k.snat {
		return giveRanges(k.datapath, up)
	}
	return nil
}

func encapsulateInGUE(d *mux.Datapath, yes bool) error {
	settings := poolOf()
	if yes {
		settings.Encapsulation = pool.GUE
	}
	return d.SetSettings(settings)
}

// nanoseconds is what a packet takes: on a quiet core, if it ever was.
func (k *class) nanoseconds() (ns float64, quiet bool) {
	var all, best []float64
	for _, b := range k.bursts {
		all = append(all, b.ns)
		if b.quiet {
			best = append(best, b.ns)
		}
	}
	if len(best) > 0 {
		return median(best), true
	}
	return median(all), false
}

// ratio is what a packet takes to one of beside, of the same turn, both without what a packet of less takes; nil: nothing.
func (k *class) ratio(beside, less *class) float64 {
	var ratios []float64
	for turn := range k.bursts {
		base := 0.0
		if less != nil {
			base = less.bursts[turn].ns
		}
		ratios = append(ratios, (k.bursts[turn].ns-base)/(beside.bursts[turn].ns-base))
	}
	return median(ratios)
}

func summarise(all []class, of family, flows int) []result {
	var results []result
	for i := range all {
		k := &all[i]
		beside := k.besides(all)
		r := result{Class: k.name, Family: of, Flows: flows, Beside: beside.name, Ratio: k.ratio(beside, nil)}
		var quiet bool
		r.NS, quiet = k.nanoseconds()
		r.Noisy = !quiet
		if k.empty != "" {
			r.WithoutHarness = k.ratio(beside, named(all, k.empty))
		}
		if known := k.verdicts["forward_flow"] + k.verdicts["forward_known"]; known > 0 {
			r.Filtered = float64(k.verdicts["forward_known"]) / float64(known)
		}
		results = append(results, r)
	}
	return results
}
