package overlay

import (
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/overlay/reset"
	"github.com/weirlb/weir/internal/fbt"
)

// Resets end a connection at both ends.
type Resets = reset.Pair

// resets are those of a session; false: too little is known of it by now.
func (n *Network) resets(s Session) (r Resets, ok bool) {
	attachment := n.attachmentOf(s)
	rule, known := n.rules[s.Rule]
	if !known {
		if rule, known = n.removed[s.Rule]; !known {
			return r, false
		}
	}
	if attachment.VNI == 0 || !rule.Tunnel.IsValid() {
		return r, false
	}
	server := rule.Backend
	if server.Port() == 0 {
		server = netip.AddrPortFrom(server.Addr(), s.Port)
	}
	local := n.local(s)
	if !local.IsValid() {
		return r, false
	}
	r.ToServer, r.Server = reset.Packet(local, server, s.ClientNext), server.Addr()
	r.ToClient = reset.VXLAN(attachment.VNI, s.ClientMAC, attachment.GatewayMAC, s.Client.Addr().Is4())
	r.ToClient = append(r.ToClient, reset.Packet(netip.AddrPortFrom(attachment.VIP, s.Port), s.Client, s.ServerNext)...)
	host := n.hosts[s.Host]
	if _, attached := n.attachments[s.Attachment]; attached && s.Events&ViaMux != 0 { // else muxes send nothing on
		ok = n.resetByMux(&r, attachment, s, host)
		return r, ok
	}
	r.Tunnel, r.Host, r.Bare = rule.Tunnel, host.V4, host.Roles&Bare != 0
	if rule.Tunnel.Is6() {
		r.Host = host.V6
	}
	return r, true
}

// resetByMux has the reset for the client go by a mux, as all answers to it do; false: it can't be known how.
func (n *Network) resetByMux(r *Resets, a Attachment, s Session, host Host) bool {
	var settings overlayOverlaySettings
	if err := n.objects.Settings.Get(&settings); err != nil {
		return false
	}
	for _, way := range []struct {
		own, mux [4]uint32
		host     netip.Addr
	}{
		{settings.Own4.Words, settings.Mux4.Words, host.V4}, {settings.Own6.Words, settings.Mux6.Words, host.V6},
	} {
		own, mux := abi.Address(way.own), abi.Address(way.mux)
		if r.Host.IsValid() || !way.host.IsValid() || !own.IsValid() || !mux.IsValid() || n.answerKey.ID == 0 {
			continue
		}
		answer := fbt.Answer{VNI: a.VNI, Host: s.Host, Client: s.Client, VIP: netip.AddrPortFrom(a.VIP, s.Port), ClientMAC: s.ClientMAC}
		mac := answer.MAC(n.answerKey)
		copy(r.ToClient, answer.VXLAN(n.answerKey))
		copy(r.ToClient[vxlanLength+len(mac):], mac[:])
		r.Tunnel, r.Host = own, mux
	}
	return true
}

const vxlanLength = 8
