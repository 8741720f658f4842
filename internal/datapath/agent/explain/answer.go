package explain

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/model/look"
	"github.com/weirlb/weir/internal/pkt"
)

// Actions of TCX, as the programs return them.
const (
	tcxNext     = -1
	tcxRedirect = 7
)

// actionName is what people call an action of a program that counted a packet as the verdict.
func actionName(action uint32, verdict string) string {
	switch {
	case strings.HasPrefix(verdict, "deliver_"):
		return look.ActionDeliver
	case strings.HasPrefix(verdict, "punt_"), verdict == "snat_queue":
		return "punt" // to the daemon, which has it already
	case int32(action) == tcxNext && strings.HasPrefix(verdict, "reply_"), action == tcxRedirect:
		return "transmit"
	case int32(action) == tcxNext:
		return "pass"
	}
	return "drop"
}

// header is what an answer follows from. Checksums may be wrong, as those of captured packets are that hardware was to fill in.
type header struct {
	source, destination netip.Addr
	protocol            uint8
	l4                  []byte // from the transport header on; empty: of a later fragment, or behind extension headers
}

// readHeader reads the IP header of an untagged frame.
func readHeader(frame []byte) (h header, ok bool) {
	const ethernet, v4, v6 = 14, 20, 40
	if len(frame) < ethernet+v4 {
		return h, false
	}
	ip := frame[ethernet:]
	switch length := int(ip[0]&0xf) * 4; {
	case ip[0]>>4 == 4 && len(ip) >= length && length >= v4:
		h = header{netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:])), ip[9], ip[length:]}
		if binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 { // a fragment
			h.l4 = nil
		}
		return h, true
	case ip[0]>>4 == 6 && len(ip) >= v6:
		return header{netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:])), ip[6], ip[v6:]}, true
	}
	return h, false
}

// segmentSize is what an answer to a SYN offers: that of Ethernet over IPv4.
const segmentSize = 1460

// answerTo is what a workload might answer to a frame that it got. False: nothing that could be foretold.
func answerTo(frame []byte) ([]byte, bool) {
	got, ok := readHeader(frame)
	if !ok || len(got.l4) < 8 {
		return nil, false
	}
	from := netip.AddrPortFrom(got.destination, binary.BigEndian.Uint16(got.l4[2:])).String()
	to := netip.AddrPortFrom(got.source, binary.BigEndian.Uint16(got.l4)).String()
	const flags = 13 // of TCP, from the beginning of its header
	switch {
	case got.protocol == unix.IPPROTO_UDP:
		return pkt.UDP(from, to, pkt.Payload(nil)).Frame(), true
	case got.protocol != unix.IPPROTO_TCP || len(got.l4) <= flags || pkt.Flags(got.l4[flags])&pkt.RST != 0:
		return nil, false
	case pkt.Flags(got.l4[flags])&pkt.SYN != 0:
		return pkt.TCP(from, to, pkt.SYN|pkt.ACK, pkt.Payload(nil), pkt.MSS(segmentSize)).Frame(), true
	}
	return pkt.TCP(from, to, pkt.ACK, pkt.Payload(nil)).Frame(), true
}
