package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/turns"
)

// turnPackets is how many packets a turn gives to a program, each by a test run of its own: a program changes its packet.
const turnPackets = 200

// segment is a kind of packets, of an established connection or of none.
type segment struct {
	program, verdict string
	action           uint32
	frame            []byte
	context          []byte // struct __sk_buff
}

const (
	tcxNext     = ^uint32(0)
	tcxRedirect = uint32(7)

	mux6 = "fd78:2::fe"

	sizeOfSKB       = 192 // struct __sk_buff
	offsetOfIfindex = 40
)

// bare is an agent's programs and tables, given packets by test runs alone.
type bare struct {
	ns       *netns.NS
	datapath *agent.Datapath
	pins     string
	index    uint32 // of the container's interface
	programs map[string]*ebpf.Program
}

// takeTurns serves test/bench/compare.
func takeTurns(cpu int) error {
	return onBareHost(func(b *bare) error {
		segments, names, err := b.prepare()
		if err != nil {
			return err
		}
		return turns.Serve(cpu, names, func(name string) (float64, error) { return b.measure(segments[name]) })
	})
}

// onBareHost does something with an agent's programs and tables, while the kernel counts the programs' time.
func onBareHost(do func(*bare) error) (err error) {
	name := fmt.Sprintf("weir-bench-agent-%d", os.Getpid())
	b := &bare{pins: "/sys/fs/bpf/" + name, programs: map[string]*ebpf.Program{}}
	if b.ns, err = netns.Create(name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return err
	}
	defer stats.Close()
	return b.ns.Do(func() error {
		if err := errors.Join(b.fill(), b.findPrograms()); err != nil {
			return err
		}
		return do(b)
	})
}

func (b *bare) close() (err error) {
	for _, program := range b.programs {
		_ = program.Close()
	}
	if b.datapath != nil {
		err = b.datapath.Unload()
	}
	return errors.Join(err, b.ns.Delete())
}

// prepare loads and fills the data plane, and brings a connection of each kind about.
func (b *bare) prepare() (segments map[string]segment, names []string, err error) {
	segments = map[string]segment{}
	add := func(name string, s segment) {
		segments[name], names = s, append(names, name)
	}
	for _, of := range []string{"v4", "v6"} {
		for _, kind := range []workload{native, container} {
			in, out, err := b.connect(of, kind)
			if err != nil {
				return nil, nil, fmt.Errorf("connect %s to %s: %w", of, kind, err)
			}
			add(fmt.Sprintf("%s/%s-tcp-in", of, kind), in)
			add(fmt.Sprintf("%s/%s-tcp-out", of, kind), out)
			e := endsOf(of, kind)
			add(fmt.Sprintf("%s/%s-udp-in", of, kind), b.in(e, pkt.UDP(e.client, e.vip)))
			add(fmt.Sprintf("%s/%s-udp-out", of, kind), b.out(e, pkt.UDP(e.dip, e.client)))
		}
		e := endsOf(of, native)
		add(of+"/others-in", segment{"from_uplink", "pass_not_tunnel", tcxNext, toUs(pkt.TCP(e.client, e.dip, pkt.ACK)), nil})
		add(of+"/others-out", segment{"to_uplink", "pass_no_session", tcxNext, toUs(pkt.TCP(e.dip, e.vip, pkt.ACK)), nil})
	}
	for _, name := range names {
		if _, err := b.send(segments[name]); err != nil {
			return nil, nil, fmt.Errorf("verify %s: %w", name, err)
		}
	}
	return segments, names, nil
}

// findPrograms opens what is attached.
func (b *bare) findPrograms() error {
	pins, err := filepath.Glob(filepath.Join(b.pins, "live", "*"))
	if err != nil {
		return err
	}
	for _, pin := range pins {
		attached, err := link.LoadPinnedLink(pin, nil)
		if err != nil {
			continue // a table is pinned there
		}
		info, err := attached.Info()
		_ = attached.Close()
		if err != nil {
			return err
		}
		program, err := ebpf.NewProgramFromID(info.Program)
		if err != nil {
			return err
		}
		named, err := program.Info()
		if err != nil {
			return err
		}
		b.programs[named.Name] = program
	}
	return nil
}

func (b *bare) fill() (err error) {
	err = errors.Join(
		netns.Veth(b.ns, "uplink", b.ns, "network"), netns.Veth(b.ns, "w0", b.ns, "eth0"),
		b.ns.AddAddress("uplink", netip.MustParsePrefix("10.78.2.3/24"), netip.MustParsePrefix("fd78:2::3/64")))
	if err != nil {
		return err
	}
	if b.datapath, err = agent.Open(agent.Config{Uplink: "uplink", PinPath: b.pins}); err != nil {
		return err
	}
	index, err := b.ns.Index("w0")
	if err != nil {
		return err
	}
	b.index = uint32(index)
	var backends []model.HostBackend
	workloads := map[netip.Addr]int{}
	for _, of := range []string{"v4", "v6"} {
		for _, kind := range []workload{native, container} {
			e := endsOf(of, kind)
			vip, dip := netip.MustParseAddrPort(e.vip), netip.MustParseAddrPort(e.dip)
			for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
				backends = append(backends, model.HostBackend{
					Endpoint: model.EndpointKey{VIP: vip.Addr(), Protocol: protocol, Port: vip.Port()},
					Tunnel:   dip.Addr(), Backend: dip, Slot: slot, Cookies: protocol == model.TCP,
				})
			}
			workloads[dip.Addr()] = 0
			if kind == container {
				workloads[dip.Addr()] = index
			}
		}
	}
	muxes := []netip.Prefix{netip.MustParsePrefix(muxAddress + "/32"), netip.MustParsePrefix(mux6 + "/128")}
	return errors.Join(b.datapath.SetMuxes(muxes), b.datapath.Replace(backends), b.datapath.SetWorkloads(workloads, nil))
}

// ends are those of a connection.
type ends struct {
	kind                  workload
	client, vip, dip, mux string
}

func endsOf(of string, kind workload) ends {
	last := map[workload]string{native: "3", container: "10"}[kind]
	if of == "v6" {
		return ends{kind, "[2001:db8::7]:40000", "[2001:db8:1::" + last + "]:80", "[fd78:2::" + last + "]:8080", mux6}
	}
	return ends{kind, "198.51.100.7:40000", "203.0.113." + last + ":80", "10.78.2." + last + ":8080", muxAddress}
}

// in is a client's packet as a mux sends it on.
func (b *bare) in(e ends, p pkt.Packet) segment {
	dip := netip.MustParseAddrPort(e.dip).Addr()
	outer := pkt.IP{Source: netip.MustParseAddr(e.mux), Destination: dip, TTL: 64, DontFragment: dip.Is4()}
	s := segment{"from_uplink", "deliver_native", tcxNext, toUs(p.Inside(outer)), nil}
	if e.kind == container {
		s.verdict, s.action = "deliver_interface", tcxRedirect
	}
	return s
}

// out is a workload's packet.
func (b *bare) out(e ends, p pkt.Packet) segment {
	if e.kind == native {
		return segment{"to_uplink", "reply_native", tcxNext, toUs(p), nil}
	}
	skb := make([]byte, sizeOfSKB)
	binary.NativeEndian.PutUint32(skb[offsetOfIfindex:], b.index)
	return segment{"from_workload", "reply_uplink", tcxRedirect, toUs(p), skb}
}

// toUs is the frame with the MAC of the interface that test runs are for, loopback.
func toUs(p pkt.Packet) []byte {
	p.Destination = pkt.MAC{}
	return p.Frame()
}

// connect opens a connection with timestamps, as Linux has them, and returns a segment of each direction.
func (b *bare) connect(of string, kind workload) (in, out segment, err error) {
	e := endsOf(of, kind)
	client, server, err := b.shakeHands(e, true)
	if err != nil {
		return in, out, err
	}
	in, out = b.in(e, client), b.out(e, server)
	for _, s := range []segment{in, out, in} {
		if _, err := b.send(s); err != nil {
			return in, out, err
		}
	}
	return in, out, nil
}

// shakeHands begins a connection, and returns the next segment of each end.
func (b *bare) shakeHands(e ends, timestamps bool) (client, server pkt.Packet, err error) {
	options := func(tsval, tsecr uint32) []func(*pkt.Packet) {
		if !timestamps {
			return nil
		}
		return []func(*pkt.Packet){pkt.NOP(2), pkt.Timestamps(tsval, tsecr)}
	}
	client = pkt.TCP(e.client, e.vip, pkt.SYN, options(1, 0)...)
	client.Seq = 1000
	if _, err := b.send(b.in(e, client)); err != nil {
		return client, server, err
	}
	server = pkt.TCP(e.dip, e.client, pkt.SYN|pkt.ACK, options(1<<20, 1)...)
	server.Seq, server.Ack = 5000, 1001
	left, err := b.send(b.out(e, server))
	if err != nil {
		return client, server, err
	}
	var told uint32
	if timestamps {
		told = binary.BigEndian.Uint32(left[server.L4()+20+4:]) // behind two NOPs, kind and length
	}
	client = pkt.TCP(e.client, e.vip, pkt.ACK, options(1, told)...)
	client.Seq, client.Ack = 1001, 5001
	server = pkt.TCP(e.dip, e.client, pkt.ACK, options(1<<20, 1)...)
	server.Seq, server.Ack = 5001, 1001
	return client, server, nil
}

// send gives a packet to its program and checks what becomes of it.
func (b *bare) send(s segment) ([]byte, error) {
	before, err := b.datapath.Verdicts()
	if err != nil {
		return nil, err
	}
	options := s.options()
	options.DataOut = make([]byte, len(s.frame)+256)
	action, err := b.programs[s.program].Run(options)
	if err != nil || action != s.action {
		return nil, fmt.Errorf("%s: action %d, want %d: %w", s.program, action, s.action, err)
	}
	after, err := b.datapath.Verdicts()
	if err == nil && after[s.verdict].Packets != before[s.verdict].Packets+1 {
		err = fmt.Errorf("%s: is not counted as %s", s.program, s.verdict)
	}
	return options.DataOut, err
}

func (s segment) options() *ebpf.RunOptions {
	options := &ebpf.RunOptions{Data: s.frame}
	if s.context != nil {
		options.Context = s.context
	}
	return options
}

// measure is the mean time of a program, as the kernel counts it.
func (b *bare) measure(s segment) (float64, error) {
	program, options := b.programs[s.program], s.options()
	before, err := program.Stats()
	if err != nil {
		return 0, err
	}
	for range turnPackets {
		if action, err := program.Run(options); err != nil || action != s.action {
			return 0, fmt.Errorf("%s: action %d, want %d: %w", s.program, action, s.action, err)
		}
	}
	after, err := program.Stats()
	if err != nil {
		return 0, err
	}
	return float64(after.Runtime-before.Runtime) / float64(after.RunCount-before.RunCount), nil
}
