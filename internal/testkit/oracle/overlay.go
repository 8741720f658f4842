package oracle

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/testkit/oracle/hoststate"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

// Overlay is load-balancer bypass on a host (NGLB, sections IV-B and V), of the client's side with one port: the tables that its
// programs are given, and the sessions that they must remember. It knows neither time nor how much fits into a set of
// the session table: the row of a session is what Place says.
type Overlay struct {
	MTU         int
	Local4      netip.Prefix
	Local6      netip.Prefix // of 48 bits
	Keys        []fbt.Key
	Attachments map[uint32]OverlayAttachment
	Rules       map[uint32]OverlayRule
	Tunnels     map[netip.Addr]OverlayTunnel
	Hosts       map[uint32][]netip.Addr // tunnel addresses, by number
	Tenants     hoststate.Tenants

	// The client's side.
	PortVNI uint32
	Clients map[netip.Addr]OverlayClient
	Own     []netip.Addr // tunnel addresses of this host
	Mux     netip.Addr   // where the muxes take VXLAN
	Mux6    netip.Addr   // likewise; not valid: not there
	Flows   hoststate.Flows
	Nonces  map[hoststate.FlowKey][6]byte // of datagrams' flows, as the programs have drawn them

	Sessions hoststate.Sessions
	Place    func(hoststate.Session) (row uint32)
}

// OverlayAttachment is a VIP in a virtual network.
type OverlayAttachment struct {
	VNI, Tenant  uint32
	VIP, Service netip.Addr
	Gateway      [6]byte
}

// OverlayRule is a backend behind a tunnel address of the host.
type OverlayRule struct {
	Service, Backend netip.AddrPort // port 0: of the service all, of the backend the client's
	Tunnel           netip.Addr
	Behind           bool // an interface, not on the host itself
	UDP              bool // else TCP
	Down             bool
}

// OverlayTunnel is who an address of the underlay belongs to.
type OverlayTunnel struct {
	Mux, Agent, Server bool
	Host               uint32 // of a host its number
}

// TCP's other flags.
const (
	flagFIN = 0x01
	flagRST = 0x04
)

// vxlanSegment is a segment of a virtual network's client as it came.
type vxlanSegment struct {
	outer      *packet
	inner      *packet
	mac, to    [6]byte // of the inner frame: source and destination
	ticket     byte    // behind the VNI
	number     uint32  // of the attachment
	attachment OverlayAttachment
	header     *bypassHeader // nil: there is none
	quote      *inet.Quote   // of an ICMP error
	fromMux    bool
	via        bool
	host       uint32 // of the client
}

func (v *vxlanSegment) seq() uint32 { return binary.BigEndian.Uint32(v.inner.l4[4:]) }

// FromUnderlay is a frame's way through the program at the uplink's ingress.
func (o *Overlay) FromUnderlay(frame []byte) Outcome {
	v, verdict := o.openVXLAN(frame)
	if verdict == "pass_not_ours" {
		return o.toClient(frame)
	}
	if verdict == "" {
		verdict = o.identify(v)
	}
	if verdict != "" {
		return Outcome{Verdict: verdict}
	}
	if v.quote != nil {
		return v.error(o)
	}
	if v.isUDP() || v.inner.fragment != nil {
		return v.datagram(o)
	}
	if v.inner.opens() && !v.fromMux {
		return Outcome{Verdict: "drop_syn_past_mux"}
	}
	row, s := o.find(v)
	switch {
	case s == nil && !v.inner.opens():
		return o.resetClient(v)
	case s == nil || v.inner.opens() && s.BeginsAnew(v.seq()):
		row, s, verdict = o.begin(v, row, s)
	case v.inner.opens() && s.Host != v.host:
		verdict = "drop_other_host"
	case !v.inner.opens():
		verdict = s.Locate(v.host, v.fromMux, v.via, v.seq())
	}
	if verdict != "" {
		return Outcome{Verdict: verdict}
	}
	return o.deliver(v, row, s)
}

// openVXLAN reads both packets, as far as they are for a VIP that is attached here.
func (o *Overlay) openVXLAN(frame []byte) (*vxlanSegment, string) {
	outer, verdict := parseIP(frame, 14, len(frame), binary.BigEndian.Uint16(frame[12:]))
	if [6]byte(frame) != ([6]byte{}) || verdict != "" || outer.protocol != 17 {
		return nil, "pass_other"
	}
	rest := frame[outer.at():]
	if len(rest) < 30 || binary.BigEndian.Uint16(rest[2:]) != 4789 || [4]byte(rest[8:]) != [4]byte{8} || rest[15] != 0 && rest[15]&^3 != 0x5c {
		return nil, "pass_not_vxlan"
	}
	length := int(binary.BigEndian.Uint16(rest[4:]))
	if length < 30 || length > len(outer.l4) {
		return nil, "pass_not_vxlan"
	}
	ethertype := binary.BigEndian.Uint16(rest[28:])
	if ethertype != 0x0800 && ethertype != 0x86dd {
		return nil, "pass_not_ours"
	}
	at := outer.at() + 30
	inner, verdict := parseIP(frame, at, outer.at()+length, ethertype)
	if verdict == "pass_malformed" {
		return nil, "pass_not_ours"
	}
	v := &vxlanSegment{outer: outer, inner: inner, mac: [6]byte(rest[22:]), to: [6]byte(rest[16:]), ticket: rest[15]}
	if !o.attach(v, binary.BigEndian.Uint32(rest[12:])>>8) {
		return nil, "pass_not_ours"
	}
	if verdict = v.read(verdict); verdict != "" {
		return nil, verdict
	}
	if outer.tos&3 == 3 && v.inner.tos&3 == 0 {
		return nil, "drop_ecn"
	}
	return v, v.readQuote()
}

// attach finds the attachment that a segment of a network is for, and says whether there is one.
func (o *Overlay) attach(v *vxlanSegment, vni uint32) bool {
	for number, a := range o.Attachments {
		if a.VNI == vni && a.VIP == v.inner.to {
			v.number, v.attachment = number, a
		}
	}
	return v.number != 0
}

// parseIP reads the IP packet at l3, which may not reach beyond limit.
func parseIP(frame []byte, l3, limit int, ethertype uint16) (*packet, string) {
	p, verdict := &packet{frame: frame, l3: l3}, "pass_not_ip"
	switch ethertype {
	case 0x0800:
		verdict = p.parse4()
	case 0x86dd:
		verdict = p.parse6()
	}
	if verdict != "pass_not_ip" && verdict != "pass_malformed" && l3+len(p.ip) > limit {
		verdict = "pass_malformed"
	}
	return p, verdict
}

// identify says which host the segment is from: its FBT's, if a mux sent it.
func (o *Overlay) identify(v *vxlanSegment) string {
	from, known := o.Tunnels[v.outer.from]
	if !known || !from.Mux && !from.Agent {
		return "drop_not_a_vtep"
	}
	v.host, v.fromMux = from.Host, from.Mux
	switch {
	case !from.Mux:
		return v.identifyByTicket(o)
	case v.ticket != 0:
		return "drop_fbt_forged"
	case v.header != nil:
		return v.identifyByHeader(o)
	}
	option, found := fbt.Find(v.inner.l4)
	if !found {
		return "drop_fbt_missing"
	}
	says, err := fbt.Check(o.Keys, fbt.Segment{
		Outer: v.outer.to, Client: v.inner.flow.Source, VIP: v.inner.flow.Destination, Seq: v.seq(),
	}, option)
	switch {
	case errors.Is(err, fbt.ErrKey):
		return "drop_fbt_key"
	case err != nil:
		return "drop_fbt_forged"
	case says.VNI != v.attachment.VNI:
		return "drop_fbt_vni"
	}
	return v.locateClient(o, says)
}

// locateClient notes where the client is.
func (v *vxlanSegment) locateClient(o *Overlay, says fbt.Content) string {
	v.via, v.host = says.Via, says.Number
	if says.Host.IsValid() {
		v.host = o.Tunnels[says.Host].Host
	}
	if v.host == 0 {
		return "drop_fbt_host"
	}
	return ""
}

func (o *Overlay) find(v *vxlanSegment) (uint32, *hoststate.Session) {
	for row, s := range o.Sessions {
		if s.Client == v.inner.flow.Source && s.Port == v.inner.flow.Destination.Port() && s.Attachment == v.number && s.UDP == v.isUDP() {
			return row, s
		}
	}
	return 0, nil
}

// rule is that of the segment's VIP and port behind the tunnel that it came by.
func (o *Overlay) rule(v *vxlanSegment) (uint32, bool) {
	for _, port := range []uint16{v.inner.flow.Destination.Port(), 0} {
		for number, r := range o.Rules {
			if r.Tunnel == v.outer.to && r.UDP == v.isUDP() && r.Service == netip.AddrPortFrom(v.attachment.Service, port) {
				return number, true
			}
		}
	}
	return 0, false
}

func (o *Overlay) begin(v *vxlanSegment, row uint32, past *hoststate.Session) (uint32, *hoststate.Session, string) {
	rule, ok := o.rule(v)
	if !ok {
		return 0, nil, "drop_no_rule"
	}
	if past == nil {
		if refused := o.Sessions.Refuses(v.attachment.Tenant, o.Tenants, func(s *hoststate.Session) uint32 { return o.Attachments[s.Attachment].Tenant }); refused != "" {
			return 0, nil, refused
		}
	} else if !past.IsOver() {
		rule = past.Rule
	}
	s := &hoststate.Session{
		Client: v.inner.flow.Source, Port: v.inner.flow.Destination.Port(), Attachment: v.number, Rule: rule,
		Host: v.host, MAC: v.mac, Via: v.via, UDP: v.isUDP(),
	}
	if !s.UDP {
		s.ClientNext = v.seq() + 1
	}
	if past == nil {
		row = o.Place(*s)
	}
	o.Sessions[row] = s
	return row, s, ""
}
