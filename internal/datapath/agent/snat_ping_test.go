package agent

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/pkt"
)

// longEcho is an echo of more bytes than one fragment of split has.
func longEcho(from, to string, kind uint8, id uint16) []byte {
	ip := message(from, to, kind, bytes.Repeat([]byte("ping"), 20))
	at := 20
	if ip[0]>>4 == 6 {
		at = 40
	}
	binary.BigEndian.PutUint16(ip[at+4:], id)
	sumEcho(ip, at)
	return ip
}

// split cuts an IP packet behind 48 bytes of its payload.
func split(ip []byte) (first, last []byte) {
	const size, id = 48, 4711
	piece := func(data []byte, offset, more uint16) []byte {
		if ip[0]>>4 == 4 {
			head := append([]byte(nil), ip[:20]...)
			binary.BigEndian.PutUint16(head[2:], uint16(20+len(data)))
			binary.BigEndian.PutUint16(head[4:], id)
			binary.BigEndian.PutUint16(head[6:], offset/8|more<<13)
			head[10], head[11] = 0, 0
			binary.BigEndian.PutUint16(head[10:], sumOf(head))
			return append(head, data...)
		}
		head := append(append([]byte(nil), ip[:40]...), ip[6], 0, 0, 0, 0, 0, id>>8, id&0xff)
		head[6] = 44 // the fragment header
		binary.BigEndian.PutUint16(head[4:], uint16(8+len(data)))
		binary.BigEndian.PutUint16(head[42:], offset|more)
		return append(head, data...)
	}
	payload := ip[20:]
	if ip[0]>>4 == 6 {
		payload = ip[40:]
	}
	return piece(payload[:size], 0, 1), piece(payload[size:], size, 0)
}

// carriedPiece is a fragment in GUE, as a mux sends that of an answer to a ping.
func carriedPiece(ip []byte, tunnel string, id uint16) []byte {
	g := gue{weir: true, kind: kindFragment, destinationPort: id}
	family := pkt.IP{Source: netip.MustParseAddr(mux6)}
	if ip[0]>>4 == 4 {
		family.Source = netip.MustParseAddr(mux4)
	}
	datagram := inGUE(pkt.UDP(client4, vip4), outer(tunnel), g).With(pkt.Payload(append(g.bytes(family), ip...)))
	return withoutChecksum(datagram)
}

// Pings larger than the MTU leave in fragments, and so come their answers.
func TestSNATPingsInFragments(t *testing.T) {
	r := snatRig(t)
	for _, c := range []struct {
		dip, vip, remote string
		request, reply   uint8
		at               int // of the ICMP header in the first fragment
	}{
		{native4, crawler4, "198.51.100.7", echo4, 0, 20},
		{native6, crawler6, "2001:db8::7", echo6, 129, 48},
	} {
		first, last := split(longEcho(c.dip, c.remote, c.request, 77))
		out := r.run("to_uplink", asFrame(first), nil)
		if out.verdict != "snat_native" {
			t.Fatalf("the first fragment of %s is %s", c.dip, out.verdict)
		}
		id := binary.BigEndian.Uint16(out.frame[ethernetHeader+c.at+4:])
		wantFirst, wantLast := split(longEcho(c.vip, c.remote, c.request, id))
		if !bytes.Equal(out.frame[ethernetHeader:], wantFirst) {
			t.Errorf("the first fragment left as\n%x, not\n%x", out.frame[ethernetHeader:], wantFirst)
		}
		if out := r.run("to_uplink", asFrame(last), nil); out.verdict != "reply_native" || !bytes.Equal(out.frame[ethernetHeader:], wantLast) {
			t.Errorf("the last fragment left by %s as\n%x, not\n%x", out.verdict, out.frame[ethernetHeader:], wantLast)
		}
		first, last = split(longEcho(c.remote, c.vip, c.reply, id))
		wantFirst, wantLast = split(longEcho(c.remote, c.dip, c.reply, 77))
		for _, p := range []struct {
			name     string
			in, want []byte
		}{{"first", first, wantFirst}, {"last", last, wantLast}} {
			got := r.run("from_uplink", carriedPiece(p.in, c.dip, id), nil)
			if got.verdict != "deliver_native" || !bytes.Equal(got.frame[ethernetHeader:], p.want) {
				t.Errorf("the %s fragment of the answer is %s\n%x, not\n%x", p.name, got.verdict, got.frame, p.want)
			}
		}
		if got := r.run("from_uplink", carriedPiece(last, c.dip, id+1), nil); got.verdict != "drop_no_rule" {
			t.Errorf("a fragment of nobody's answer is %s", got.verdict)
		}
	}
}
