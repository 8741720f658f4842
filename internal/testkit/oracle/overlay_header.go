package oracle

import (
	"bytes"
	"errors"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

// bypassHeader is what a mux puts before UDP, and before TCP whose options leave no room for the FBT.
type bypassHeader [fbt.Length]byte

func (v *vxlanSegment) isUDP() bool { return v.inner.protocol == protocolUDP }

// takeHeader takes the header off the packet inside; false: it is none of ours.
func (v *vxlanSegment) takeHeader() bool {
	p := *v.inner
	if len(p.l4) < fbt.Length || p.l4[1] != 1 || p.l4[6] != 0 || p.l4[7]&0x0f != 1 {
		return false
	}
	h := bypassHeader(p.l4)
	v.header = &h
	ip := append(bytes.Clone(p.ip[:len(p.ip)-len(p.l4)]), p.l4[fbt.Length:]...)
	inet.Relabel(p.ip, ip, h[0])
	p.frame = append(append(bytes.Clone(p.frame[:p.l3]), ip...), p.frame[p.l3+len(p.ip):]...)
	p.ip, p.l4, p.protocol = ip, ip[len(ip)-len(p.l4)+fbt.Length:], h[0]
	v.inner = &p
	return true
}

// withHeader is the IP packet with a bypass header.
func withHeader(p *packet, h [fbt.Length]byte) []byte {
	at := len(p.ip) - len(p.l4)
	ip := append(append(bytes.Clone(p.ip[:at]), h[:]...), p.l4...)
	inet.Relabel(p.ip, ip, fbt.HeaderProtocol)
	return ip
}

// checksumAt is where in the transport's header its checksum is.
func checksumAt(protocol uint8) int {
	if protocol == protocolUDP {
		return 6
	}
	return 16
}

// identifyByHeader is the client's host that a mux's header names.
func (v *vxlanSegment) identifyByHeader(o *Overlay) string {
	of := fbt.Segment{Outer: v.outer.to, Client: v.inner.flow.Source, VIP: v.inner.flow.Destination}
	if !v.isUDP() {
		of.Seq = v.seq()
	}
	says, err := fbt.CheckHeader(o.Keys, v.attachment.VNI, of, *v.header)
	switch {
	case errors.Is(err, fbt.ErrKey):
		return "drop_fbt_key"
	case err != nil:
		return "drop_fbt_forged"
	}
	return v.locateClient(o, says)
}

// datagram is a client's, of UDP: the first one makes a session, and the mux says where the client is.
func (v *vxlanSegment) datagram(o *Overlay) Outcome {
	row, s := o.find(v)
	if s == nil || s.isOver() {
		var refused string
		if row, s, refused = o.begin(v, row, s); refused != "" {
			return Outcome{Verdict: refused}
		}
	}
	s.Host, s.Via = v.host, v.via
	return o.deliver(v, row, s)
}
