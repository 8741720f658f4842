package explain

import (
	"strings"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/model/look"
	"github.com/weirlb/weir/internal/pkt"
)

// Actions of TCX, as the programs return them.
const (
	tcxNext     = -1
	tcxDrop     = 2
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

// segmentSize is what an answer to a SYN offers: that of Ethernet over IPv4.
const segmentSize = 1460

// answerTo is what a workload might answer to a frame that it got. False: nothing that could be foretold.
func answerTo(frame []byte) ([]byte, bool) {
	got, err := pkt.Decode(frame)
	if err != nil || got.IP.IsFragment() {
		return nil, false
	}
	answer := got.With(func(p *pkt.Packet) {
		p.Source, p.Destination = p.Destination, p.Source
		p.IP.Source, p.IP.Destination = p.IP.Destination, p.IP.Source
		p.SourcePort, p.DestinationPort = p.DestinationPort, p.SourcePort
		p.Options, p.Payload, p.Padding = nil, nil, 0
	})
	switch {
	case got.Protocol == layers.IPProtocolUDP:
		return answer.Frame(), true
	case got.Protocol != layers.IPProtocolTCP || got.Flags&pkt.RST != 0:
		return nil, false
	case got.Flags&pkt.SYN != 0:
		return answer.With(func(p *pkt.Packet) { p.Flags = pkt.SYN | pkt.ACK }, pkt.MSS(segmentSize)).Frame(), true
	}
	return answer.With(func(p *pkt.Packet) { p.Flags = pkt.ACK }).Frame(), true
}
