package bgp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/frr"
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

	mu      sync.Mutex
	next    bfdPacket // what is sent
	silent  int       // how many turns nothing is
	deaf    bool      // it does not answer what it hears
	last    byte      // state that was heard
	heardOf []uint32  // the speaker's discriminators
}

// sendsEvery is a turn of the router that is played.
const sendsEvery = 50 * time.Millisecond

const firstSession, secondSession = 0xaaaa, 0xbbbb

func (n *network) playForgetfulRouter() *forgetfulRouter {
	n.t.Helper()
	return n.playForgetfulRouterEvery(sendsEvery)
}

func (n *network) playForgetfulRouterEvery(turn time.Duration) *forgetfulRouter {
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
	running.Go(func() { r.send(stop, turn) })
	n.t.Cleanup(func() {
		close(stop)
		r.socket.Close()
		running.Wait()
	})
	return r
}

func (r *forgetfulRouter) send(stop <-chan struct{}, turn time.Duration) {
	tick := time.NewTicker(turn)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			r.mu.Lock()
			wire, silent := r.next.bytes(), r.silent > 0
			r.silent = max(0, r.silent-1)
			r.mu.Unlock()
			if silent {
				continue
			}
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
	r.last = p.state
	if !slices.Contains(r.heardOf, p.mine) {
		r.heardOf = append(r.heardOf, p.mine)
	}
	switch {
	case r.deaf:
	case r.next.state == bfdUp && p.state == bfdDown: // the speaker begins anew
		r.next.state, r.next.yours, r.next.txInterval = bfdDown, 0, time.Second
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

// A speaker on a busy machine may not get to run for longer than the router is to be silent. It must not end its own
// session for that, with its routes: here the router is silent, for longer than the speaker may be.
func TestBFDIsPatientWithTheRouter(t *testing.T) {
	n := newNetwork(t, func(c *frr.Config) { c.GracefulRestart = true })
	router := n.playForgetfulRouter()
	config := n.config(1)
	config.GracefulRestart = 30 * time.Second
	config.Peers[0].BFD = 500 * time.Millisecond
	s := n.startSpeaker(1, config, vip4)
	s.want("bfd up", func(p PeerState) bool { return p.Established() && p.BFD == "up" })
	n.wantNextHops(vip4, "10.8.1.2")

	events := n.routeEvents(vip4)
	router.mu.Lock()
	router.silent = int(config.Peers[0].BFD * bfdMultiplier * 5 / 3 / sendsEvery)
	router.mu.Unlock()
	eventually(t, func() bool {
		router.mu.Lock()
		defer router.mu.Unlock()
		return router.silent == 0
	}, func() string { return "the router is silent on" })
	if state := s.peers()[0]; !state.Established() || state.BFD != "up" {
		t.Errorf("after a silence: %+v", state)
	}
	if lines := events(); len(lines) > 0 || strings.Contains(s.log.String(), "is down") {
		t.Errorf("a silence shorter than it may be had events: %q\n%s", lines, s.log)
	}
}

// remember has the router keep to one session, whatever comes.
func (r *forgetfulRouter) remember() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next.mine = secondSession
}

// setDeaf has the router answer what it hears, or not, and says how many sessions of the speaker it has heard of.
func (r *forgetfulRouter) setDeaf(deaf bool) (sessions int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = deaf
	return len(r.heardOf)
}

// FRR from 10.2 on closes the connections of a neighbour whose BFD is not up, as this router refuses them.
func TestBFDComesUpBeforeASession(t *testing.T) {
	n := newNetwork(t, nil)
	router := n.playForgetfulRouter()
	for _, rule := range []string{
		"add table inet refuse", "add chain inet refuse input { type filter hook input priority 0; }",
		"add rule inet refuse input tcp dport 179 reject with tcp reset",
	} {
		if out, err := n.router.Run("nft", rule); err != nil {
			t.Fatal(err, out)
		}
	}
	config := n.config(1)
	config.Peers[0].BFD = 100 * time.Millisecond
	s := n.startSpeaker(1, config, vip4)
	s.want("bfd up without a session", func(p PeerState) bool { return !p.Established() && p.BFD == "up" })

	// It goes down once more, and the next session must not be reset for it.
	router.mu.Lock()
	router.silent = int(2 * time.Second / sendsEvery)
	router.mu.Unlock()
	s.want("bfd down", func(p PeerState) bool { return p.BFD == "down" })
	s.want("bfd up again", func(p PeerState) bool { return !p.Established() && p.BFD == "up" })
	if out, err := n.router.Run("nft", "delete table inet refuse"); err != nil {
		t.Fatal(err, out)
	}
	s.want("the session, and bfd still up", func(p PeerState) bool { return p.Established() && p.BFD == "up" })
	n.wantNextHops(vip4, "10.8.1.2")
	if log := s.log.String(); strings.Contains(log, "session is down") || strings.Contains(log, "does not come up") {
		t.Errorf("the speaker lost its session, or blames the router:\n%s", log)
	}
}

// BFD that has heard the router, and is not heard by it yet, goes on when the session begins: the router may be about to take
// it for up, and would reset the session if it fell silent.
func TestBFDInInitStaysWhenASessionBegins(t *testing.T) {
	n := newNetwork(t, nil)
	router := n.playForgetfulRouterEvery(sendsEvery / 10) // the speaker hears it at once, however often it begins anew
	router.setDeaf(true)
	router.remember()
	for _, rule := range []string{
		"add table inet refuse", "add chain inet refuse input { type filter hook input priority 0; }",
		"add rule inet refuse input tcp dport 179 reject with tcp reset",
	} {
		if out, err := n.router.Run("nft", rule); err != nil {
			t.Fatal(err, out)
		}
	}
	config := n.config(1)
	config.Peers[0].BFD = 100 * time.Millisecond
	s := n.startSpeaker(1, config, vip4)
	eventually(t, func() bool {
		router.mu.Lock()
		defer router.mu.Unlock()
		return router.last == bfdInit
	}, func() string { return "bfd is not in init without a session" })
	if out, err := n.router.Run("nft", "delete table inet refuse"); err != nil {
		t.Fatal(err, out)
	}
	s.want("the session", PeerState.Established)
	before := router.setDeaf(false)
	s.want("bfd up", func(p PeerState) bool { return p.Established() && p.BFD == "up" })
	if after := router.setDeaf(false); after != before {
		t.Errorf("the speaker began %d sessions of BFD anew when the session of BGP had begun", after-before)
	}
	if log := s.log.String(); strings.Contains(log, "session is down") || strings.Contains(log, "does not come up") {
		t.Errorf("the speaker lost its session, or blames the router:\n%s", log)
	}
}
