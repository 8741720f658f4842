package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/pkt"
)

// Ends of the connections. Clients are the addresses of 192.0.0.0/8 from this one on.
const (
	vni     = 100
	client  = "192.0.0.1:40000"
	vip     = "10.99.0.1:80"
	service = "203.0.113.10:80"
	backend = "10.1.0.5:8080"
	tunnel  = "10.1.0.5"
	mux     = "10.0.0.1"
	host    = "10.2.0.1"
)

// bypass is a data plane of the overlay with sessions.
type bypass struct {
	datapath  *overlay.Datapath
	pins      string
	in, out   *ebpf.Program
	key       fbt.Key
	sessions  []overlay.Session
	rng       *rand.Rand
	syn, ack  []byte
	answer    []byte
	segmentAt int // in syn and ack: of the inner TCP header
}

func newBypass(ns *netns.NS, name string, sets uint32) (*bypass, error) {
	b := &bypass{
		pins: fmt.Sprintf("/sys/fs/bpf/weir-bench-overlay-%s-%d", name, os.Getpid()), rng: rand.New(rand.NewPCG(1, 2)),
		key: fbt.Key{Secret: [16]byte{1, 2, 3}, ID: 1}, segmentAt: 14 + 20 + 30 + 20,
	}
	uplink, err := ns.Index("uplink")
	if err != nil {
		return nil, err
	}
	b.datapath, err = overlay.Open(overlay.Config{
		PinPath: b.pins, Sets: sets, Uplink: uplink, MTU: 1500, Seal: [2]uint32{1, 2},
		Local4: netip.MustParsePrefix("100.64.0.0/10"), Local6: netip.MustParsePrefix("fd99::/48"),
	})
	if err != nil {
		return nil, err
	}
	addr, end := netip.MustParseAddr, netip.MustParseAddrPort
	const most = 1 << 21
	err = errors.Join(
		b.datapath.SetKeys([]fbt.Key{b.key}),
		b.datapath.SetAttachments(map[uint32]overlay.Attachment{1: {
			VNI: vni, VIP: end(vip).Addr(), Service: end(service).Addr(), Tenant: 1, GatewayMAC: [6]byte{2, 9},
		}}),
		b.datapath.SetRules(map[uint32]overlay.Rule{1: {Service: end(service), Tunnel: addr(tunnel), Backend: end(backend)}}),
		b.datapath.SetHosts([]overlay.Host{{Roles: overlay.Mux, V4: addr(mux)}, {Number: 7, Roles: overlay.Client, V4: addr(host)}}),
		b.datapath.SetTenant(1, most, most, most))
	if b.in, err = b.program("from_underlay", err); err == nil {
		b.out, err = b.program("to_underlay", err)
	}
	if err != nil {
		return nil, errors.Join(err, b.datapath.Unload())
	}
	b.frames()
	return b, nil
}

// program is what a pinned link runs.
func (b *bypass) program(name string, err error) (*ebpf.Program, error) {
	if err != nil {
		return nil, err
	}
	return attached(filepath.Join(b.pins, "live", name))
}

func attached(pin string) (*ebpf.Program, error) {
	live, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return nil, err
	}
	defer live.Close()
	info, err := live.Info()
	if err != nil {
		return nil, err
	}
	return ebpf.NewProgramFromID(info.Program)
}

func (b *bypass) close() {
	if err := b.datapath.Unload(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func (b *bypass) frames() {
	carry := func(p pkt.Packet, from string) []byte {
		v := pkt.VXLAN{VNI: vni, SourcePort: 50000, Outer: pkt.IP{
			Source: netip.MustParseAddr(from), Destination: netip.MustParseAddr(tunnel), TTL: 64,
		}}
		return v.Frame(p)
	}
	option := layers.TCPOption{OptionType: fbt.Kind, OptionLength: fbt.Length, OptionData: make([]byte, fbt.Length-2)}
	payload := pkt.Payload(make([]byte, 128))
	b.syn = carry(pkt.TCP(client, vip, pkt.SYN, pkt.TCPOptions(option)), mux)
	b.ack = carry(pkt.TCP(client, vip, pkt.ACK, payload), host)
	p := pkt.TCP(backend, "100.64.0.0:40000", pkt.ACK, payload)
	p.Destination = pkt.MAC{}
	b.answer = p.Frame()
}

func clientAt(i int) netip.AddrPort {
	first := netip.MustParseAddrPort(client)
	base := first.Addr().As4()
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(base[:])+uint32(i)))), first.Port())
}

// fill makes sessions of n clients, or until the table has no room, and says what they take.
func (b *bypass) fill(n int) ([]row, error) {
	made := 0
	for ; made < n; made++ {
		from := clientAt(made)
		address := from.Addr().As4()
		copy(b.syn[b.segmentAt-8:], address[:])
		option := fbt.Encode(b.key, fbt.Segment{
			Outer: netip.MustParseAddr(tunnel), Client: from, VIP: netip.MustParseAddrPort(vip), Seq: 1000,
		}, fbt.Content{VNI: vni, Number: 7})
		copy(b.syn[b.segmentAt+20:], option[:])
		const drop = 2
		action, err := b.in.Run(&ebpf.RunOptions{Data: b.syn})
		if err != nil {
			return nil, err
		}
		if action == drop {
			break
		}
	}
	for s := range b.datapath.All() {
		b.sessions = append(b.sessions, s)
	}
	// They are half-open: on a slow machine a few of the first are over, and have given their rows to the last.
	if len(b.sessions) > made || len(b.sessions) < made-made/100 {
		return nil, fmt.Errorf("%d sessions of %d", len(b.sessions), made)
	}
	const tag = 4
	return []row{
		{"vctk-bytes-per-row", overlay.RowSize + tag, 60},
		{"vctk-with-room-at-1m", float64(b.datapath.Rows()*(overlay.RowSize+tag)) / float64(len(b.sessions)), 72},
	}, nil
}

func (b *bypass) programs() (in, out *ebpf.Program) { return b.in, b.out }

// packets are data of sessions at random. Neither program looks at checksums.
func (b *bypass) packets() (in, out [][]byte) {
	for range burst {
		s := b.sessions[b.rng.IntN(len(b.sessions))]
		client, local := s.Client.Addr().As4(), b.datapath.Local(s).Addr().As4()
		ack, answer := append([]byte(nil), b.ack...), append([]byte(nil), b.answer...)
		copy(ack[b.segmentAt-8:], client[:])
		copy(answer[14+16:], local[:])
		in, out = append(in, ack), append(out, answer)
	}
	return in, out
}
