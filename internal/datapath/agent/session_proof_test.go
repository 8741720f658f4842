package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// talk is a connection of packets, with the numbers that both ends count by.
type talk struct {
	*rig
	handshake
}

// The sequence numbers of both ends once the handshake is done.
const clientNext, workloadNext = clientISN + 1, workloadISN + 1

// talks runs fn for a connection of each family and kind of workload.
func talks(t *testing.T, fn func(t *testing.T, c talk)) {
	t.Helper()
	for _, family := range []int{4, 6} {
		for _, kind := range []string{"native", "interface"} {
			h := newHandshake(family, kind, aligned)
			t.Run(h.name(), func(t *testing.T) { fn(t, talk{newRig(t), h}) })
		}
	}
}

func (h handshake) name() string {
	if h.family == 6 {
		return h.kind + " IPv6"
	}
	return h.kind + " IPv4"
}

// hears gives the workload a segment of its client.
func (c talk) hears(flags pkt.Flags, seq, ack uint32) {
	c.t.Helper()
	client, vip, _ := c.ends()
	p := pkt.TCP(client, vip, flags, numbers(seq, ack)).Inside(outer(dipOf(c.kind, 4)))
	if got := c.verdict("from_uplink", p); got != "deliver_"+c.kind {
		c.t.Fatalf("a segment to the workload: verdict is %s", got)
	}
}

// says has the workload send a segment, and returns what became of it.
func (c talk) says(flags pkt.Flags, seq, ack uint32) string {
	c.t.Helper()
	client, _, dip := c.ends()
	program := map[string]string{"native": "to_uplink", "interface": "from_workload"}[c.kind]
	return c.verdict(program, pkt.TCP(own(dip, backendPort), client, flags, numbers(seq, ack)))
}

// answers is says, for what must reach the client as the VIP's.
func (c talk) answers(flags pkt.Flags, seq, ack uint32) {
	c.t.Helper()
	if got, want := c.says(flags, seq, ack), map[string]string{"native": "reply_native", "interface": "reply_uplink"}[c.kind]; got != want {
		c.t.Fatalf("a segment of the workload: verdict is %s, not %s", got, want)
	}
}

// shake is the handshake of a connection that both ends agree in.
func (c talk) shake() {
	c.t.Helper()
	c.hears(pkt.SYN, clientISN, 0)
	c.answers(pkt.SYN|pkt.ACK, workloadISN, clientNext)
	c.hears(pkt.ACK, clientNext, workloadNext)
}

// sweep pretends that so much time has passed, and says in which state the only session is then, if any.
func (c talk) sweep(after time.Duration) (session.Report, session.State) {
	c.t.Helper()
	sessionReport, err := c.Sweep(session.Now()+after, session.DefaultTimeouts())
	if err != nil {
		c.t.Fatal(err)
	}
	return sessionReport, c.state()
}

func (c talk) state() session.State {
	c.t.Helper()
	sessions, err := c.Sessions()
	if err != nil || len(sessions) > 1 {
		c.t.Fatalf("sessions are %v (%v)", sessions, err)
	}
	if len(sessions) == 0 {
		return ""
	}
	return sessions[0].State
}

// A reset with a number that is not the connection's leaves it as it is, however quiet the workload is.
func TestForgedReset(t *testing.T) {
	talks(t, func(t *testing.T, c talk) {
		c.shake()
		c.hears(pkt.RST, clientNext-70000, 0)
		if _, state := c.sweep(time.Minute); state != session.StateEstablished {
			t.Errorf("a minute later the session is %q", state)
		}
		c.answers(pkt.ACK|pkt.PSH, workloadNext, clientNext)
		if _, state := c.sweep(2 * time.Hour); state != session.StateEstablished {
			t.Errorf("two hours after the workload's answer the session is %q", state)
		}
	})
}

// What a SYN begins anew, after a forged reset or without, is for the workload to say.
func TestForgedResetAndSYN(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	r.inside(func() {
		for _, family := range []int{4, 6} {
			for _, kind := range []string{"native", "interface"} {
				r.forget()
				b := beginNow(newHandshake(family, kind, aligned), everything)
				for _, s := range b.opened() {
					r.check(b.name(), s)
				}
				client, vip, _ := b.ends()
				for _, flags := range []pkt.Flags{pkt.RST, pkt.SYN} {
					forged := pkt.TCP(client, vip, flags, numbers(1, 0)).Inside(outer(dipOf(kind, 4)))
					if got := r.verdict("from_uplink", forged); got != "deliver_"+kind {
						t.Errorf("%s: a forged segment: verdict is %s", b.name(), got)
					}
				}
				later := tsval0 + uint32(16)
				r.check(b.name()+" after a forged reset and SYN", b.fromWorkload(pkt.ACK|pkt.PSH, 1, clientISN+11, later, b.tellsAs(later)))
			}
		}
	})
}

// Of a reset that may be forged the workload is asked: it says that the connection is there, or is not, or nothing.
func TestResetIsVerified(t *testing.T) {
	timeouts := session.DefaultTimeouts()
	talks(t, func(t *testing.T, c talk) {
		c.shake()
		c.hears(pkt.RST, clientNext+1, 0)
		if sessionReport, _ := c.sweep(timeouts.Reset / 2); len(sessionReport.Doubtful) != 0 {
			t.Errorf("asked at once: %+v", sessionReport.Doubtful)
		}
		sessionReport, _ := c.sweep(timeouts.Reset + time.Second)
		client, _, dip := c.ends()
		want := session.Probe{
			From: netip.MustParseAddrPort(client), To: netip.AddrPortFrom(netip.MustParseAddr(dip), backendPort),
			Seq: clientNext - 1, Ack: workloadISN,
		}
		if len(sessionReport.Doubtful) != 1 || sessionReport.Doubtful[0] != want {
			t.Fatalf("asks %+v, not %+v", sessionReport.Doubtful, want)
		}
		c.answers(pkt.ACK, workloadNext, clientNext)
		if sessionReport, state := c.sweep(time.Hour); len(sessionReport.Doubtful) != 0 || state != session.StateEstablished {
			t.Errorf("when the workload has the connection, the session is %q, and asks %+v", state, sessionReport.Doubtful)
		}
		c.hears(pkt.RST, clientNext+1, 0)
		c.answers(pkt.RST, workloadISN, 0)
		if state := c.state(); state != session.StateReset {
			t.Errorf("when the workload has no connection, the session is %q", state)
		}

		c.shake()
		c.hears(pkt.RST, clientNext+1, 0)
		if _, state := c.sweep(timeouts.Closing - time.Minute); state != session.StateEstablished {
			t.Errorf("before the workload has answered the session is %q", state)
		}
		if _, state := c.sweep(timeouts.Closing + time.Minute); state != "" {
			t.Errorf("when the workload does not answer the session is %q", state)
		}

		c.shake()
		c.hears(pkt.RST, clientNext, 0)
		if state := c.state(); state != session.StateReset {
			t.Errorf("after a reset with the number that the workload expects the session is %q", state)
		}
	})
}

// confirmed says whether the only session is where floods of SYNs do not reach.
func (c talk) confirmed() bool {
	c.t.Helper()
	var key bpf.AgentSessionKey
	return c.objects.Sessions.NextKey(nil, &key) == nil
}

// An acknowledgement of anything but the SYN/ACK proves no client, in whatever order it comes.
func TestBlindAcknowledgement(t *testing.T) {
	talks(t, func(t *testing.T, c talk) {
		blind := func() { c.hears(pkt.ACK, clientNext, workloadNext+1<<20) }
		blind()
		c.hears(pkt.SYN, clientISN, 0)
		blind()
		c.answers(pkt.SYN|pkt.ACK, workloadISN, clientNext)
		blind()
		c.hears(pkt.FIN|pkt.ACK, clientNext, workloadISN-1)
		c.answers(pkt.RST, workloadNext+1<<20, 0) // by which the workload answers one of them
		blind()
		if c.confirmed() || c.state() != session.StateSYN {
			t.Fatalf("a blind acknowledgement makes the session %s, confirmed: %v", c.state(), c.confirmed())
		}
		c.hears(pkt.ACK, clientNext, workloadNext)
		if !c.confirmed() || c.state() != session.StateEstablished {
			t.Errorf("the client's acknowledgement makes the session %s, confirmed: %v", c.state(), c.confirmed())
		}
		blind()
		if c.state() != session.StateEstablished {
			t.Errorf("then a blind acknowledgement makes the session %s", c.state())
		}
	})
}

// A port that is used again begins a session anew, whatever was noted of the one before.
func TestPortUsedAgain(t *testing.T) {
	const secondISN = 5_000_000
	talks(t, func(t *testing.T, c talk) {
		c.shake()
		c.hears(pkt.FIN|pkt.ACK, clientNext, workloadNext)
		c.answers(pkt.FIN|pkt.ACK, workloadNext, clientEnd)
		if state := c.state(); state != session.StateClosing {
			t.Fatalf("after both ends have finished the session is %q", state)
		}
		c.hears(pkt.SYN, secondISN, 0)
		if state := c.state(); state != session.StateClosing {
			t.Errorf("a SYN, which may be forged, makes the session %s", state)
		}
		c.answers(pkt.SYN|pkt.ACK, workloadISN+1<<24, secondISN+1)
		if state := c.state(); state != session.StateSYN {
			t.Errorf("the workload's SYN/ACK makes the session %s", state)
		}
		c.hears(pkt.ACK, secondISN+1, workloadISN+1<<24+1)
		if state := c.state(); state != session.StateEstablished {
			t.Errorf("the client's acknowledgement makes the session %s", state)
		}
	})
}
