package agent

import (
	"testing"
	"time"

	"github.com/weirlb/weir/internal/pkt"
)

// A UDP flow gives its place to another VIP's when it was still for ten seconds; a connection does not.
func TestStillFlowMakesRoom(t *testing.T) {
	const still = 5 * time.Second // the machine may take as long for what the test does
	r := newRig(t)
	udp := func(vip string) (in, out, reply, answer pkt.Packet) {
		packet := pkt.UDP(client4, vip)
		in, out = packet.Inside(outer(native4)), delivered(packet, native4)
		reply = replyTo(out, 0)
		return in, out, reply, reply.With(from(vip))
	}
	in, out, reply, answer := udp(vip4)
	in2, out2, reply2, answer2 := udp(otherVIP4)
	syn := pkt.TCP(client4, vip4, pkt.SYN)
	synOut := delivered(syn, native4)

	r.check("a flow", inbound(in, "deliver_native", &out))
	r.check("a connection", inbound(syn.Inside(outer(native4)), "deliver_native", &synOut))
	r.check("another VIP's meets a live flow", inbound(in2, "drop_session_taken", nil))
	r.age(still)
	r.check("another VIP's meets one that was still for some seconds", inbound(in2, "drop_session_taken", nil))
	r.check("which goes on", inbound(in, "deliver_native", &out))
	r.age(still)
	r.check("and still does", inbound(in2, "drop_session_taken", nil))
	r.age(-time.Minute)
	r.check("another VIP's meets one whose last packet another CPU has just noted", inbound(in2, "drop_session_taken", nil))
	r.check("by its answers too", outbound("to_uplink", reply, "reply_native", &answer))
	r.age(11 * time.Second)
	r.check("another VIP's meets one that was still for eleven seconds", inbound(in2, "deliver_native", &out2))
	r.check("answers are the other VIP's", outbound("to_uplink", reply2, "reply_native", &answer2))
	r.check("the first has no place now", inbound(in, "drop_session_taken", nil))
	r.check("a connection has its place for longer", inbound(pkt.TCP(client4, otherVIP4, pkt.SYN).Inside(outer(native4)), "drop_session_taken", nil))
}
