package drivertest

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// Path is the data path of a switch: a way in for packets, and the underlay that its tunnels end in.
type Path interface {
	// Send has a UDP packet enter the switch. Its payload is its number, so that arrivals can be told apart.
	Send(p Packet) error
	// Arrivals returns a channel of what the switch has sent into tunnels.
	Arrivals() <-chan Arrival
}

// Packet is a UDP packet.
type Packet struct {
	Client, VIP netip.AddrPort
	Number      uint64
	From, TIP   netip.Addr // of the outer header that it is sent in; invalid: it is sent in none
}

// Arrival is a packet that came by a tunnel.
type Arrival struct {
	Packet
	Source, Tunnel netip.Addr // of the outer header
	TTL            uint8      // of the inner one; the Path sends 64
	Problem        string     // what is wrong with the packet: a checksum, a length, another protocol
}

const (
	sentTTL = 64
	// A packet that has not come after that is lost.
	arrivalTime = 5 * time.Second
)

// flow is the number of a flow of a client to a VIP.
func flow(vip netip.Addr, n int) Packet {
	client := netip.AddrFrom4([4]byte{198, 51, 100, byte(1 + n%200)})
	if vip.Is6() {
		client = netip.MustParseAddr(fmt.Sprintf("2001:db8:c::%x", 1+n%200))
	}
	return Packet{Client: netip.AddrPortFrom(client, uint16(40000+n*7)), VIP: netip.AddrPortFrom(vip, 80)}
}

// exchange sends packets and waits for them: by number. Fewer come only if the switch does not send them into tunnels.
func exchange(t *testing.T, path Path, packets []Packet, first uint64) map[uint64]Arrival {
	t.Helper()
	arrived := map[uint64]Arrival{}
	for i, p := range packets {
		p.Number = first + uint64(i)
		if err := path.Send(p); err != nil {
			t.Fatalf("send: %v", err)
		}
	}
	timeout := time.NewTimer(arrivalTime)
	defer timeout.Stop()
	for len(arrived) < len(packets) {
		select {
		case a := <-path.Arrivals():
			if a.Number < first || a.Number >= first+uint64(len(packets)) {
				continue
			}
			if _, twice := arrived[a.Number]; twice {
				t.Errorf("packet %d came twice", a.Number)
			}
			arrived[a.Number] = a
		case <-timeout.C:
			return arrived
		}
	}
	return arrived
}
