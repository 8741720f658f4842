package agent_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/syncookie"
)

// answerer plays the mux's part: it answers the SYNs that come from the client, by cookies.
type answerer struct {
	t      *testing.T
	socket int

	mu      sync.Mutex
	secrets []model.SYNSecret
	rotates func() // after the answer to each client; nil: does not
	last    syncookie.Flow
	acks    []pkt.Packet // by which clients end the handshakes that were answered
}

// answer has the network answer SYNs to the VIPs, which no host sees from then on.
func (w *world) answer() *answerer {
	w.t.Helper()
	var all []model.HostBackend
	for _, way := range []struct{ vip, tunnel, dip string }{
		{nativeVIP4, hostDIP4, hostDIP4},
		{nativeVIP6, hostDIP6, hostDIP6},
		{interfaceVIP4, workloadDIP4, workloadDIP4},
		{interfaceVIP6, workloadDIP6, workloadDIP6},
	} {
		vip, source := netip.MustParseAddr(way.vip), "10.77.2.254"
		if vip.Is6() {
			source = "fd77:2::254"
		}
		w.must(w.mux.Send(vip, netip.MustParseAddr(source), netip.MustParseAddr(way.tunnel)), w.mux.Silence(vip))
		b := backend(model.TCP, way.vip, way.tunnel, way.dip)
		b.SYNCookies = model.SYNCookiesAlways
		all = append(all, b)
	}
	a := &answerer{t: w.t}
	w.must(w.datapath.Apply(all, nil), w.host.Do(w.datapath.Refresh))
	a.rotate(w, 1)
	index, err := w.network.Index("client")
	w.must(err)
	w.must(w.network.Do(func() error {
		a.socket, err = synSocket(index)
		return err
	}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); a.run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		<-ended
		w.must(unix.Close(a.socket))
	})
	return a
}

// rotate makes the secrets from first on the only ones.
func (a *answerer) rotate(w *world, first uint32) {
	a.secrets = nil
	for i := range uint32(model.SYNSecrets) {
		a.secrets = append(a.secrets, model.SYNSecret{ID: first + i, Secret: [16]byte{byte(first + i), 'x'}})
	}
	w.must(w.datapath.SetSYNSecrets(a.secrets))
}

// synSocket receives the SYNs of an interface.
func synSocket(index int) (int, error) {
	const v4, v6, tcp, flags = 0x0800, 0x86dd, 6, 13
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: v6, SkipTrue: 5},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: v4, SkipTrue: 9},
		bpf.LoadAbsolute{Off: 14 + 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: tcp, SkipTrue: 7},
		bpf.LoadAbsolute{Off: 14 + 20 + flags, Size: 1},
		bpf.Jump{Skip: 3},
		bpf.LoadAbsolute{Off: 14 + 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: tcp, SkipTrue: 3},
		bpf.LoadAbsolute{Off: 14 + 40 + flags, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(pkt.SYN), SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return 0, err
	}
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	program := make([]unix.SockFilter, len(filter))
	for i, f := range filter {
		program[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	err = errors.Join(
		unix.SetsockoptSockFprog(socket, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(program)), Filter: unsafe.SliceData(program)}),
		unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}),
		unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}))
	return socket, err
}

func (a *answerer) run(ctx context.Context) {
	frame := make([]byte, 2048)
	for ctx.Err() == nil {
		n, _, err := unix.Recvfrom(a.socket, frame, 0)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			a.t.Errorf("read SYNs: %v", err)
			return
		}
		answer, ok := a.to(frame[:n])
		if !ok {
			continue
		}
		if _, err := unix.Write(a.socket, answer.Frame()); err != nil {
			a.t.Errorf("answer a SYN: %v", err)
			return
		}
	}
}

// to is the SYN/ACK to a SYN.
func (a *answerer) to(frame []byte) (pkt.Packet, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	parsed := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	tcp, ok := parsed.TransportLayer().(*layers.TCP)
	if !ok {
		return pkt.Packet{}, false
	}
	source, destination := parsed.NetworkLayer().NetworkFlow().Endpoints()
	client, _ := netip.AddrFromSlice(source.Raw())
	vip, _ := netip.AddrFromSlice(destination.Raw())
	flow := syncookie.Flow{
		Client: netip.AddrPortFrom(client, uint16(tcp.SrcPort)), VIP: netip.AddrPortFrom(vip, uint16(tcp.DstPort)), ISN: tcp.Seq,
	}
	offer, tsval := offerOf(tcp)
	now := time.Now()
	answer := pkt.TCP(flow.VIP.String(), flow.Client.String(), pkt.SYN|pkt.ACK, pkt.Payload(nil), func(p *pkt.Packet) {
		p.Seq, p.Ack = syncookie.Make(model.MakesSYNCookies(a.secrets), flow, offer, now), tcp.Seq+1
		ethernet := parsed.LinkLayer().(*layers.Ethernet)
		p.Source, p.Destination = pkt.MAC(ethernet.DstMAC), pkt.MAC(ethernet.SrcMAC)
	}, pkt.MSS(uint16(clampedMSS(vip.String(), 1500, outerMost)+12)))
	if offer.SACK && offer.Timestamps {
		answer = answer.With(pkt.TCPOptions(layers.TCPOption{OptionType: layers.TCPOptionKindSACKPermitted, OptionLength: 2}))
	}
	if offer.Timestamps {
		answer = answer.With(pkt.Timestamps(syncookie.TSval(offer, slot, now), tsval))
	}
	if offer.Scale >= 0 && offer.Timestamps {
		answer = answer.With(pkt.NOP(1), pkt.TCPOptions(layers.TCPOption{
			OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{syncookie.WindowScale},
		}))
	}
	ack := pkt.TCP(flow.Client.String(), flow.VIP.String(), pkt.ACK, pkt.Payload(nil), func(p *pkt.Packet) {
		p.Seq, p.Ack, p.Source, p.Destination = answer.Ack, answer.Seq+1, answer.Destination, answer.Source
	})
	if offer.Timestamps {
		ack = ack.With(pkt.NOP(2), pkt.Timestamps(tsval, syncookie.TSval(offer, slot, now)))
	}
	a.acks = append(a.acks, ack)
	if a.rotates != nil && flow != a.last { // not once more for a SYN that was sent again
		a.rotates()
	}
	a.last = flow
	return answer, true
}

// offerOf is what a SYN offers, and its TSval.
func offerOf(tcp *layers.TCP) (offer syncookie.Offer, tsval uint32) {
	offer = syncookie.Offer{MSS: 536, Scale: syncookie.NoScale}
	for _, o := range tcp.Options {
		switch o.OptionType {
		case layers.TCPOptionKindMSS:
			offer.MSS = binary.BigEndian.Uint16(o.OptionData)
		case layers.TCPOptionKindWindowScale:
			offer.Scale = int(o.OptionData[0])
		case layers.TCPOptionKindSACKPermitted:
			offer.SACK = true
		case layers.TCPOptionKindTimestamps:
			offer.Timestamps, tsval = true, binary.BigEndian.Uint32(o.OptionData)
		}
	}
	if !offer.Timestamps {
		offer.Scale, offer.SACK = syncookie.NoScale, false
	}
	return offer, tsval
}

// listenTCP listens for plain TCP, or for Multipath TCP, as Go's listeners do unless told otherwise.
func listenTCP(t *testing.T, ns *netns.NS, address string, multipath bool, control func(uintptr)) (listener net.Listener) {
	t.Helper()
	config := net.ListenConfig{}
	config.SetMultipathTCP(multipath)
	if control != nil {
		config.Control = rawControl(control)
	}
	err := ns.Do(func() (err error) {
		listener, err = config.Listen(context.Background(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(address), dipPort).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func rawControl(set func(uintptr)) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error { return raw.Control(set) }
}

// TestSYNCookieTransfers sends both ways over connections whose SYN a mux answered: to the host's own
// stack, which makes a socket of the cookie, or can't, and to a workload that sees a handshake.
func TestSYNCookieTransfers(t *testing.T) {
	w := newOrderedWorld(t)
	w.answer()
	for _, c := range []struct {
		name       string
		timestamps string // of the client
		multipath  bool
		options    uint8
	}{
		{"timestamps", "1", false, optTimestamps | optSACK | optWScale},
		{"a listener of MPTCP", "1", true, optTimestamps | optSACK | optWScale},
		{"without timestamps", "0", false, 0},
	} {
		w.must(w.client.Sysctl("net.ipv4.tcp_timestamps", c.timestamps))
		for name, way := range w.ways() {
			t.Run(fmt.Sprintf("%s/%s", c.name, name), func(t *testing.T) {
				before := w.verdicts()
				listener := listenTCP(t, way.server, way.dip, c.multipath, nil)
				defer listener.Close()
				served := make(chan error, 1)
				go func() { served <- serveWithOptions(listener, c.options) }()
				connection := dial(t, w.client, way.vip)
				defer connection.Close()
				if err := exchange(connection, 20<<20); err != nil {
					t.Error(err)
				}
				if err := <-served; err != nil {
					t.Errorf("workload: %v", err)
				}
				want := "syncookie_interface"
				if way.server == w.host {
					want = "syncookie_socket"
				}
				if way.server == w.host && c.multipath {
					want = "syncookie_native"
				}
				if got := w.verdicts()[want].Packets - before[want].Packets; got == 0 {
					t.Errorf("no packet was %s", want)
				}
			})
		}
	}
	w.wantNoOddTimestamps()
}

func (w *world) verdicts() map[string]model.Counter {
	w.t.Helper()
	verdicts, err := w.datapath.Verdicts()
	w.must(err)
	return verdicts
}
