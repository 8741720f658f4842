package switchlab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/hardware/drivertest"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/pkt"
)

const (
	receiveBytes = 16 << 20 // of the socket's buffer
	pollTime     = 50 * time.Millisecond
)

var magic = []byte("switchlab")

// Send implements drivertest.Path.
func (l *Lab) Send(p drivertest.Packet) error {
	if _, err := unix.Write(l.send, l.Frame(p)); err != nil {
		return fmt.Errorf("send packet %d: %w", p.Number, err)
	}
	return nil
}

// Frame is a packet as it enters the switch from the client.
func (l *Lab) Frame(p drivertest.Packet) []byte {
	packet := pkt.UDP(p.Client.String(), p.VIP.String(), pkt.Payload(binary.BigEndian.AppendUint64(append([]byte(nil), magic...), p.Number)))
	packet.Source, packet.Destination = l.clientMAC, l.switchMAC
	if p.TIP.IsValid() {
		packet = packet.Inside(pkt.IP{Source: p.From, Destination: p.TIP, TTL: 64})
	}
	return packet.Frame()
}

// Arrivals implements drivertest.Path.
func (l *Lab) Arrivals() <-chan drivertest.Arrival { return l.arrivals }

func (l *Lab) openSender(t *testing.T) {
	t.Helper()
	l.send = openSocket(t, l.Client, 0)
}

// openSocket opens a packet socket at a namespace's eth0 until the test ends. Protocol 0 receives nothing.
func openSocket(t *testing.T, ns *netns.NS, protocol uint16) (socket int) {
	t.Helper()
	index, err := ns.Index("eth0")
	must(t, err)
	must(t, ns.Do(func() (err error) {
		socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return errors.Join(
			unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBytes),
			unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: pollTime.Microseconds()}),
			unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: protocol<<8 | protocol>>8, Ifindex: index}),
		)
	}))
	t.Cleanup(func() { must(t, unix.Close(socket)) })
	return socket
}

func (l *Lab) openReceiver(t *testing.T) {
	t.Helper()
	socket := openSocket(t, l.Fabric, unix.ETH_P_ALL)
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	go func() {
		defer close(stopped)
		frame := make([]byte, 1<<16)
		for {
			select {
			case <-stop:
				return
			default:
			}
			n, from, err := unix.Recvfrom(socket, frame, 0)
			if link, ok := from.(*unix.SockaddrLinklayer); err != nil || !ok || link.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			a, ok := decode(frame[:n])
			if !ok {
				continue
			}
			select {
			case l.arrivals <- a:
			default: // nobody has read sixteen thousand of them
			}
		}
	}()
}

// decode reads a frame of the fabric; false: it is not one of ours.
func decode(frame []byte) (a drivertest.Arrival, ok bool) {
	if len(frame) < 14 || frame[12] == 0x88 { // LLDP and the like
		return a, false
	}
	p, err := pkt.Decode(frame)
	if p.Outer == nil || len(p.Payload) != len(magic)+8 || string(p.Payload[:len(magic)]) != string(magic) {
		return a, false
	}
	a.Source, a.Tunnel = p.Outer.Source, p.Outer.Destination
	a.Client, a.VIP = netip.AddrPortFrom(p.IP.Source, p.SourcePort), netip.AddrPortFrom(p.IP.Destination, p.DestinationPort)
	a.Number, a.TTL = binary.BigEndian.Uint64(p.Payload[len(magic):]), p.IP.TTL
	switch {
	case err != nil:
		a.Problem = err.Error()
	case p.Protocol != layers.IPProtocolUDP:
		a.Problem = "it is not UDP any more"
	}
	return a, true
}
