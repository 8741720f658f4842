package oracle

import (
	"bytes"
	"cmp"
	"errors"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

// bypassHeader is what a mux puts before UDP, and before TCP whose options leave no room for the FBT.
type bypassHeader [fbt.Length]byte

func (v *vxlanSegment) isUDP() bool { return v.inner.flow.Protocol == model.UDP }

// takeHeader takes the header off the packet inside; false: it is none of ours.
func (v *vxlanSegment) takeHeader() bool {
	p := *v.inner
	behind := p.v4 || len(p.ip)-len(p.l4) == fixedHeader(false)
	if !behind || len(p.l4) < fbt.Length || p.l4[1] != 1 || p.l4[6] != 0 || p.l4[7]&0x0f != 1 {
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
	at := fixedHeader(p.v4) // in front of extension headers
	ip := append(append(bytes.Clone(p.ip[:at]), h[:]...), p.ip[at:]...)
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
	if !v.isUDP() && v.quote == nil && v.inner.fragment == nil {
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

// datagram is a client's, of UDP: the first one makes a session, and the mux says where the client is. Fragments of TCP make
// none, and do not tell of a move.
func (v *vxlanSegment) datagram(o *Overlay) Outcome {
	row, s := o.find(v)
	switch {
	case v.isUDP() && !v.fromMux:
		return v.straight(o, row, s)
	case !v.isUDP() && s == nil:
		return Outcome{Verdict: "drop_no_session"}
	case !v.isUDP() && s.Host != v.host:
		return Outcome{Verdict: "drop_other_host"}
	case !v.isUDP():
		return o.deliver(v, row, s)
	}
	if s == nil || s.IsOver() {
		var refused string
		if row, s, refused = o.begin(v, row, s); refused != "" {
			return Outcome{Verdict: refused}
		}
	}
	s.Host, s.Via = v.host, v.via
	return v.delivered(o, row, s, v.to)
}

// isLater says whether it is a fragment without ports.
func isLater(p *packet) bool { return p.fragment != nil && p.fragment.offset != 0 }

// readHeader takes the bypass header, if there is one, and says what was said of the packet behind it.
func (v *vxlanSegment) readHeader(verdict string) string {
	if verdict != "" && verdict != "pass_fragment" || v.inner.protocol != fbt.HeaderProtocol {
		return verdict
	}
	if !v.takeHeader() {
		return "pass_malformed"
	}
	if !v.inner.v4 && isExtension(v.inner.protocol) {
		return v.inner.skipExtensions(v.inner.protocol)
	}
	return verdict
}

// read reads what is behind the IP header inside, of which verdict was said.
func (v *vxlanSegment) read(verdict string) string {
	verdict = v.readHeader(verdict)
	p, headed := v.inner, v.header != nil
	switch {
	case verdict == "pass_malformed":
		return "drop_inner_malformed"
	case verdict == "pass_fragment" && !headed:
		return "drop_inner_fragment"
	case verdict != "" && verdict != "pass_fragment":
		return "drop_inner_other"
	case headed && p.fragment == nil && p.isICMP() && holdsError(p):
		v.quote = &inet.Quote{}
		return ""
	case p.protocol != protocolTCP && (p.protocol != protocolUDP || !headed && v.ticket == 0):
		return "drop_inner_other"
	case isLater(p):
		p.readFlow(v.header[2:])
		return ""
	case p.parseTransport() != "":
		return "drop_inner_malformed"
	}
	if p.fragment != nil {
		p.flags = 0
	}
	return ""
}

// readQuote reads what an error is about: a packet of the VIP.
func (v *vxlanSegment) readQuote() string {
	if v.quote == nil {
		return ""
	}
	q, ok := inet.ReadQuote(v.inner.l4[8:], v.inner.v4)
	if !ok || q.From.Addr() != v.inner.to {
		return "drop_inner_other"
	}
	v.quote, v.inner.flow = &q, model.Flow{Protocol: model.Protocol(q.Protocol), Source: q.To, Destination: q.From}
	return ""
}

// error is one of a client's network, about what a server has sent.
func (v *vxlanSegment) error(o *Overlay) Outcome {
	row, s := o.find(v)
	if s == nil {
		return Outcome{Verdict: "drop_no_session"}
	}
	r, p := o.Rules[s.Rule], v.inner
	at := len(p.ip) - len(p.l4)
	switch {
	case s.Host != v.host:
		return Outcome{Verdict: "drop_other_host"}
	case r.Down || !r.Tunnel.IsValid():
		return Outcome{Verdict: "drop_no_workload"}
	case r.Backend.Addr().Is4() != p.v4:
		return Outcome{Verdict: "drop_no_rule"}
	case p.v4 && at != fixedHeader(true):
		return Outcome{Verdict: "drop_rewrite"}
	}
	port := cmp.Or(r.Backend.Port(), s.Port)
	ip := inet.TranslateError(p.ip, at, *v.quote, o.Local(row, s), r.Backend.Addr(), true, port, ecn(v.outer.tos, p.tos))
	frame := append(append(bytes.Clone(p.frame[:12]), etherType(p.v4)...), ip...)
	verdict := "deliver_native"
	if r.Behind {
		verdict = "deliver_interface"
	}
	return Outcome{Verdict: verdict, Frame: append(frame, p.frame[p.l3+len(p.ip):]...)}
}

// errorFromServer is one of a server, or of its network, about what a client has sent.
func (o *Overlay) errorFromServer(p *packet) Outcome {
	at := len(p.ip) - len(p.l4)
	q, ok := inet.ReadQuote(p.l4[8:], p.v4)
	if !ok || q.From.Addr() != p.to {
		return Outcome{Verdict: "drop_local_other"}
	}
	row := o.local().Row(p.to)
	s := o.Sessions[row]
	answer := &packet{from: q.To.Addr(), to: p.to, protocol: q.Protocol, flow: model.Flow{Source: q.To, Destination: q.From}}
	if s == nil || !o.isAnswer(answer, row, s) {
		return Outcome{Verdict: "drop_no_session"}
	}
	r, a := o.Rules[s.Rule], o.Attachments[s.Attachment]
	from, to, refused := wayOf(o, s.Host, r.Tunnel, false)
	switch {
	case refused != "":
		return Outcome{Verdict: refused}
	case len(p.ip)+vxlanRoom(to) > o.MTU:
		return Outcome{Verdict: "drop_too_big"}
	}
	ip := inet.TranslateError(p.ip, at, q, a.VIP, s.Client.Addr(), false, s.Port, p.tos)
	return replyTo(o, p, ip, s, false, from, to)
}
