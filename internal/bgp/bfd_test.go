package bgp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// States of BFD on the wire (RFC 5880, section 4.1).
const (
	bfdDown = 1
	bfdInit = 2
	bfdUp   = 3
)

// bfdPacket is the part of a BFD control packet that these tests care for.
type bfdPacket struct {
	state      byte
	mine       uint32 // the sender's discriminator
	yours      uint32 // the receiver's, as the sender knows it
	txInterval time.Duration
}

const bfdPacketSize = 24

func (p bfdPacket) bytes() []byte {
	wire := []byte{1 << 5, p.state << 6, bfdMultiplier, bfdPacketSize}
	for _, word := range []uint32{p.mine, p.yours, uint32(p.txInterval / time.Microsecond), 100_000, 0} {
		wire = binary.BigEndian.AppendUint32(wire, word)
	}
	return wire
}

func parseBFD(wire []byte) bfdPacket {
	return bfdPacket{
		state: wire[1] >> 6, mine: binary.BigEndian.Uint32(wire[4:]), yours: binary.BigEndian.Uint32(wire[8:]),
	}
}

// forgetfulRouter plays BFD at the router's end towards speaker 1: it deletes its first session just when
// the speaker has heard of it, and begins another.
type forgetfulRouter struct {
	socket *net.UDPConn

	mu   sync.Mutex
	next bfdPacket // what is sent
}

const firstSession, secondSession = 0xaaaa, 0xbbbb

func (n *network) playForgetfulRouter() {
	n.t.Helper()
	r := &forgetfulRouter{next: bfdPacket{state: bfdDown, mine: firstSession, txInterval: time.Second}}
	err := n.router.Do(func() (err error) {
		r.socket, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.8.1.1:3784")))
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(r.receive)
	running.Go(func() { r.send(stop) })
	n.t.Cleanup(func() {
		close(stop)
		r.socket.Close()
		running.Wait()
	})
}

func (r *forgetfulRouter) send(stop <-chan struct{}) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			r.mu.Lock()
			wire := r.next.bytes()
			r.mu.Unlock()
			// Fails while nobody listens there.
			_, _ = r.socket.WriteToUDPAddrPort(wire, netip.MustParseAddrPort("10.8.1.2:3784"))
		}
	}
}

func (r *forgetfulRouter) receive() {
	wire := make([]byte, bfdPacketSize)
	for {
		n, err := r.socket.Read(wire)
		if err != nil {
			return
		}
		if n == bfdPacketSize {
			r.heard(parseBFD(wire))
		}
	}
}

func (r *forgetfulRouter) heard(p bfdPacket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.next.mine == firstSession && p.yours == firstSession:
		r.next.mine = secondSession
	case r.next.mine == secondSession && p.yours == secondSession && p.state >= bfdInit:
		r.next.state, r.next.yours, r.next.txInterval = bfdUp, p.mine, 100*time.Millisecond
	}
}

// FRR deletes and makes BFD sessions as its neighbours come, later than usual when it is busy. A speaker
// that has met the one that is deleted must not lose its BGP session for it.
func TestBFDOfARouterThatBeginsAnew(t *testing.T) {
	n := newNetwork(t, nil)
	n.playForgetfulRouter()
	config := n.config(1)
	config.Peers[0].BFD = 100 * time.Millisecond
	s := n.startSpeaker(1, config, vip4)
	s.want("bfd up", func(p PeerState) bool { return p.Established() && p.BFD == "up" })
	if log := s.log.String(); strings.Contains(log, "session is down") || strings.Contains(log, "does not come up") {
		t.Errorf("the speaker lost its session, or blames the router:\n%s", log)
	}
	n.wantNextHops(vip4, "10.8.1.2")
}
