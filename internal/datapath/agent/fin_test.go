package agent

import (
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/pkt"
)

// payloadBytes are what each segment of these tests carries.
const payloadBytes = 20

// The number by which the other end acknowledges a FIN that follows the handshake at once.
const clientEnd, workloadEnd = clientNext + payloadBytes + 1, workloadNext + payloadBytes + 1

// ahead is the sequence number that stands so many bytes after the client's first one.
func ahead(bytes uint32) uint32 { return bytes + clientNext }

// forgedFINs have sequence numbers that are not the client's next one; one ends where the client is.
func forgedFINs() []uint32 {
	return []uint32{clientNext - 70_000, ahead(1 << 20), ahead(1 << 31), ahead(1), clientNext - payloadBytes - 1}
}

// A FIN with a number that the workload does not acknowledge ends nothing, whoever has finished.
func TestForgedFIN(t *testing.T) {
	talks(t, func(t *testing.T, c talk) {
		established := func(when string) {
			t.Helper()
			if _, state := c.sweep(time.Hour); state != session.StateEstablished {
				t.Fatalf("%s an hour later the session is %q", when, state)
			}
		}
		c.shake()
		for _, seq := range forgedFINs() {
			c.hears(pkt.FIN|pkt.ACK, seq, workloadNext)
			c.answers(pkt.ACK, workloadNext, clientNext)
			established("after a forged FIN of the client")
		}
		c.answers(pkt.FIN|pkt.ACK, workloadNext, clientNext)
		established("after a forged FIN and the workload's own")
		for _, seq := range forgedFINs() {
			c.hears(pkt.FIN|pkt.ACK, seq, workloadEnd)
			c.answers(pkt.ACK, workloadEnd, clientNext)
			established("after the workload's FIN and a forged one")
		}
	})
}

// A FIN counts once the workload acknowledges it, whatever was forged before and meanwhile.
func TestFINIsAcknowledged(t *testing.T) {
	later := ahead(1 << 20)
	closes := map[string]func(c talk){
		"the client first": func(c talk) {
			c.hears(pkt.FIN|pkt.ACK, clientNext, workloadNext)
			c.hears(pkt.FIN|pkt.ACK, later, workloadNext)
			c.answers(pkt.ACK, workloadNext, clientEnd)
			c.hears(pkt.FIN|pkt.ACK, later, workloadNext)
			c.answers(pkt.FIN|pkt.ACK, workloadNext, clientEnd)
		},
		"the workload first": func(c talk) {
			c.hears(pkt.FIN|pkt.ACK, later, workloadNext)
			c.answers(pkt.FIN|pkt.ACK, workloadNext, clientNext)
			c.hears(pkt.FIN|pkt.ACK, clientNext, workloadEnd)
			c.hears(pkt.FIN|pkt.ACK, later, workloadNext)
			c.answers(pkt.ACK, workloadEnd, clientEnd)
		},
		"both, and the client's is lost once": func(c talk) {
			c.answers(pkt.FIN|pkt.ACK, workloadNext, clientNext)
			c.hears(pkt.FIN|pkt.ACK, clientNext, workloadNext)
			c.answers(pkt.ACK, workloadEnd, clientNext)
			c.hears(pkt.FIN|pkt.ACK, clientNext, workloadEnd)
			c.answers(pkt.ACK, workloadEnd, clientEnd)
		},
	}
	for name, finish := range closes {
		t.Run(name, func(t *testing.T) {
			talks(t, func(t *testing.T, c talk) {
				c.shake()
				finish(c)
				if state := c.state(); state != session.StateClosing {
					t.Errorf("the session is %q", state)
				}
			})
		})
	}
}

// A FIN may be what a session begins anew with, after a restart.
func TestFINOfAnUnknownConnection(t *testing.T) {
	talks(t, func(t *testing.T, c talk) {
		c.hears(pkt.FIN|pkt.ACK, clientNext, workloadNext)
		c.answers(pkt.FIN|pkt.ACK, workloadNext, clientNext)
		if state := c.state(); state != session.StateEstablished {
			t.Errorf("before the workload has acknowledged the FIN the session is %q", state)
		}
		c.answers(pkt.ACK, workloadEnd, clientEnd)
		if state := c.state(); state != session.StateClosing {
			t.Errorf("then the session is %q", state)
		}
	})
}

// A remote's FIN with a number that the workload does not acknowledge leaves the port to the connection.
func TestSNATForgedFIN(t *testing.T) {
	ownTalks(t, func(t *testing.T, c ownTalk) {
		open := func(when string) {
			t.Helper()
			if used, live := c.use(c.dip).PortsInUse, c.sweep(time.Hour).Live; used != 1 || live != 1 {
				t.Fatalf("%s %d ports are in use, and an hour later %d flows live", when, used, live)
			}
		}
		c.shake()
		for _, seq := range forgedFINs() {
			c.hears(pkt.FIN|pkt.ACK, seq, workloadNext)
			c.says(pkt.ACK, workloadNext, clientNext)
		}
		c.says(pkt.FIN|pkt.ACK, workloadNext, clientNext)
		open("after forged FINs and the workload's own")
		for _, seq := range forgedFINs() {
			c.hears(pkt.FIN|pkt.ACK, seq, workloadEnd)
			c.says(pkt.ACK, workloadEnd, clientNext)
		}
		open("after the workload's FIN and forged ones")
		c.hears(pkt.FIN|pkt.ACK, clientNext, workloadEnd)
		c.hears(pkt.FIN|pkt.ACK, ahead(1<<20), workloadEnd)
		c.says(pkt.ACK, workloadEnd, clientEnd)
		if used, live := c.use(c.dip).PortsInUse, c.sweep(time.Hour).Live; used != 0 || live != 0 {
			t.Errorf("after the remote's FIN %d ports are in use, and an hour later %d flows live", used, live)
		}
	})
	ownTalks(t, func(t *testing.T, c ownTalk) {
		c.shake()
		c.hears(pkt.FIN|pkt.ACK, clientNext, workloadNext)
		c.says(pkt.ACK, workloadNext, clientEnd)
		if used := c.use(c.dip).PortsInUse; used != 1 {
			t.Errorf("after the remote's FIN alone %d ports are in use", used)
		}
		c.says(pkt.FIN|pkt.ACK, workloadNext, clientEnd)
		if used, live := c.use(c.dip).PortsInUse, c.sweep(time.Hour).Live; used != 0 || live != 0 {
			t.Errorf("when the remote has finished first %d ports are in use, and an hour later %d flows live", used, live)
		}
	})
}
