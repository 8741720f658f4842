package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/pkt"
)

// own is a workload's own connection of packets.
type ownTalk struct {
	*rig
	dip, remote string
	out         pkt.Packet // the SYN as it left
}

// ownTalks runs fn for a connection of each family and kind of workload, whose SYN has left.
func ownTalks(t *testing.T, fn func(t *testing.T, c ownTalk)) {
	t.Helper()
	for _, dip := range []string{native4, native6, guest4, guest6} {
		t.Run(dip, func(t *testing.T) {
			c := ownTalk{rig: snatRig(t), dip: dip, remote: remote4}
			if netip.MustParseAddr(dip).Is6() {
				c.remote = remote6
			}
			c.out = c.says(pkt.SYN, workloadISN, 0)
			fn(t, c)
		})
	}
}

// says has the workload send a segment, which must leave as the VIP's.
func (c ownTalk) says(flags pkt.Flags, seq, ack uint32) pkt.Packet {
	c.t.Helper()
	return c.leaves(c.dip, c.segment(flags, seq, ack))
}

func (c ownTalk) segment(flags pkt.Flags, seq, ack uint32) pkt.Packet {
	return pkt.TCP(own(c.dip, 50000), c.remote, flags, numbers(seq, ack))
}

// hears gives the workload a segment of the remote, and says what became of it.
func (c ownTalk) hears(flags pkt.Flags, seq, ack uint32) string {
	c.t.Helper()
	return c.verdict("from_uplink", answered(c.out, c.dip, flags, numbers(seq, ack)))
}

// shake ends the handshake.
func (c ownTalk) shake() {
	c.t.Helper()
	c.hears(pkt.SYN|pkt.ACK, clientISN, workloadNext)
	c.says(pkt.ACK, workloadNext, clientNext)
}

func (c ownTalk) sweep(after time.Duration) session.SNATReport {
	c.t.Helper()
	sessionReport, err := c.SweepSNAT(session.Now()+after, session.DefaultTimeouts())
	if err != nil {
		c.t.Fatal(err)
	}
	return sessionReport
}

// A remote's reset with a number that is not the connection's leaves it as it is, however quiet the workload is.
func TestSNATForgedReset(t *testing.T) {
	ownTalks(t, func(t *testing.T, c ownTalk) {
		c.shake()
		c.hears(pkt.RST, clientNext-70000, 0)
		if live := c.sweep(time.Minute).Live; live != 1 {
			t.Fatalf("a minute after a forged reset %d flows live", live)
		}
		if port := c.says(pkt.ACK|pkt.PSH, workloadNext, clientNext).SourcePort; port != c.out.SourcePort {
			t.Errorf("the workload goes on from port %d, not %d", port, c.out.SourcePort)
		}
		if live := c.sweep(2 * time.Hour).Live; live != 1 {
			t.Errorf("two hours after the workload's answer %d flows live", live)
		}
	})
}

// Of a reset that may be forged the workload is asked, as of a session's.
func TestSNATResetIsVerified(t *testing.T) {
	timeouts := session.DefaultTimeouts()
	ownTalks(t, func(t *testing.T, c ownTalk) {
		c.shake()
		c.hears(pkt.RST, clientNext+1, 0)
		want := session.Probe{
			From: netip.MustParseAddrPort(c.remote), To: netip.MustParseAddrPort(own(c.dip, 50000)),
			Seq: clientNext - 1, Ack: workloadNext,
		}
		if due := c.sweep(timeouts.Reset + time.Second).Doubtful; len(due) != 1 || due[0] != want {
			t.Fatalf("asks %+v, not %+v", due, want)
		}
		c.says(pkt.ACK, workloadNext, clientNext)
		if sessionReport := c.sweep(time.Hour); len(sessionReport.Doubtful) != 0 || sessionReport.Live != 1 {
			t.Errorf("when the workload has the connection: %+v", sessionReport)
		}
		c.hears(pkt.RST, clientNext+1, 0)
		if sessionReport := c.sweep(timeouts.Closing - time.Minute); sessionReport.Live != 1 {
			t.Errorf("before the workload has answered: %+v", sessionReport)
		}
		c.says(pkt.RST, workloadNext, 0)
		if sessionReport := c.sweep(timeouts.Reset + time.Second); sessionReport.Live != 0 {
			t.Errorf("when the workload has no connection: %+v", sessionReport)
		}
	})
	ownTalks(t, func(t *testing.T, c ownTalk) {
		c.shake()
		c.hears(pkt.RST, clientNext+1, 0)
		if sessionReport := c.sweep(timeouts.Closing + time.Minute); sessionReport.Live != 0 {
			t.Errorf("when the workload does not answer: %+v", sessionReport)
		}
	})
	ownTalks(t, func(t *testing.T, c ownTalk) {
		c.shake()
		c.hears(pkt.RST, clientNext, 0)
		if sessionReport := c.sweep(timeouts.Reset + time.Second); sessionReport.Live != 0 {
			t.Errorf("after a reset with the number that the workload expects: %+v", sessionReport)
		}
	})
}

// Forged answers to a SYN, and the workload's reset of one, leave the port to the connection.
func TestSNATForgedAnswersToASYN(t *testing.T) {
	ownTalks(t, func(t *testing.T, c ownTalk) {
		c.hears(pkt.RST|pkt.ACK, 0, workloadNext+1<<20)
		c.hears(pkt.RST, 0, 0)
		c.hears(pkt.SYN|pkt.ACK, clientISN, workloadNext+1<<20)
		c.says(pkt.RST, workloadNext+1<<20, 0)
		used := c.use(c.dip).PortsInUse
		c.hears(pkt.RST|pkt.ACK, 0, workloadNext)
		if after := c.use(c.dip).PortsInUse; used != 1 || after != 0 {
			t.Errorf("%d ports are in use after forged answers, %d after the remote's refusal", used, after)
		}
	})
}
