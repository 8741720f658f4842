package mux

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// traffic sends numbered packets from the peer to the mux, UDP and TCP by turns, and notes through which
// tunnel each comes back.
type traffic struct {
	t       *testing.T
	socket  int
	frames  [2]pkt.Packet
	sending sync.WaitGroup
	stop    chan struct{}
	sent    uint64

	mu    sync.Mutex
	came  map[uint64]netip.Addr // outer destination, by number
	twice int
}

const (
	trafficEvery = time.Millisecond
	trafficMark  = 0x77656972 // begins the payload
)

func (p place) traffic(t *testing.T) *traffic {
	t.Helper()
	if err := p.peer.PassXDP("eth0"); err != nil {
		t.Fatal(err)
	}
	mac, err := p.ns.MAC("eth0")
	if err != nil {
		t.Fatal(err)
	}
	f := &traffic{t: t, stop: make(chan struct{}), came: map[uint64]netip.Addr{}}
	to := func(packet *pkt.Packet) { copy(packet.Destination[:], mac) }
	f.frames = [2]pkt.Packet{pkt.UDP(client4, vip4, to), pkt.TCP(client4, vip4, pkt.ACK, to)}
	if f.socket, err = packetSocket(p.peer); err != nil {
		t.Fatal(err)
	}
	f.sending.Go(f.send)
	f.sending.Go(f.receive)
	return f
}

// packetSocket sends and receives whole frames on the namespace's eth0.
func packetSocket(ns *netns.NS) (socket int, err error) {
	index, err := ns.Index("eth0")
	if err != nil {
		return 0, err
	}
	return socket, ns.Do(func() error {
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
		if err != nil {
			return err
		}
		wait := unix.Timeval{Usec: 100_000}
		return errors.Join(
			unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}),
			unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
			unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20))
	})
}

func (f *traffic) send() {
	tick := time.NewTicker(trafficEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		mark := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, trafficMark), f.sent)
		frame := f.frames[f.sent%2].With(pkt.Payload(mark)).Frame()
		if _, err := unix.Write(f.socket, frame); err != nil {
			f.t.Errorf("send packet %d: %v", f.sent, err)
			return
		}
		f.sent++
	}
}

// receive notes what comes back, until a while after the last was sent.
func (f *traffic) receive() {
	buffer := make([]byte, 2048)
	for idle := 0; idle < 5; {
		n, _, err := unix.Recvfrom(f.socket, buffer, 0)
		if err != nil {
			select {
			case <-f.stop:
				idle++
			default:
			}
			continue
		}
		const outer = 14 + 20
		if n < outer+20 || buffer[12] != 8 || buffer[13] != 0 || buffer[14+9] != unix.IPPROTO_IPIP {
			continue
		}
		header := 8
		if buffer[outer+9] == unix.IPPROTO_TCP {
			header = 20
		}
		payload := buffer[outer+20+header : n]
		if len(payload) < 12 || binary.BigEndian.Uint32(payload) != trafficMark {
			continue
		}
		tunnel, _ := netip.AddrFromSlice(buffer[14+16 : 14+20])
		f.mu.Lock()
		number := binary.BigEndian.Uint64(payload[4:])
		if f.came[number].IsValid() {
			f.twice++
		}
		f.came[number] = tunnel
		f.mu.Unlock()
	}
}

// through is how many packets came through each tunnel.
func (f *traffic) through() map[netip.Addr]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	count := map[netip.Addr]int{}
	for _, tunnel := range f.came {
		count[tunnel]++
	}
	return count
}

// more waits until n more packets came through the tunnel.
func (f *traffic) more(tunnel string, n int) {
	f.t.Helper()
	through := netip.MustParseAddr(tunnel)
	before := f.through()[through]
	for deadline := time.Now().Add(20 * time.Second); f.through()[through] < before+n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("%d packets more through %s never came: %v", n, tunnel, f.through())
		}
	}
}

// end stops the traffic and checks that every packet came back, once, through one of the tunnels.
func (f *traffic) end(tunnels ...string) {
	f.t.Helper()
	close(f.stop)
	f.sending.Wait()
	_ = unix.Close(f.socket)
	through, all := f.through(), 0
	for _, tunnel := range tunnels {
		all += through[netip.MustParseAddr(tunnel)]
	}
	if uint64(all) != f.sent || f.twice > 0 {
		f.t.Errorf("of %d packets %d came back through %v, %d twice; in all %v", f.sent, all, tunnels, f.twice, through)
	}
}

// fill makes the data plane send the test's VIP through the tunnel.
func fill(t *testing.T, d *Datapath, tunnel string) {
	t.Helper()
	if err := d.SetSettings(testSettings()); err != nil {
		t.Fatal(err)
	}
	all := []model.MuxEndpoint{newEndpoint(vip4, model.TCP, tunnel), newEndpoint(vip4, model.UDP, tunnel)}
	if err := d.Replace(all); err != nil {
		t.Fatal(err)
	}
	resolve(t, d)
}
