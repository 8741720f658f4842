package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// Attachment is a VIP in a virtual network.
type Attachment struct {
	Network string     // name of the network, whose tenant is the VIP's or has allowed the VIP's
	Address netip.Addr // of the VIP there; of the family of the VIP's own address
	Mode    AttachmentMode
}

// AttachmentMode says how packets of connections from a virtual network travel.
type AttachmentMode string

// The modes of attachments.
const (
	// ModeBypass lets the muxes see the first packet of a connection alone: the others go from host to host (NGLB, section IV).
	// Of UDP they see all that clients send, and the answers go from host to host.
	ModeBypass AttachmentMode = "bypass"
	// ModeFullNAT has all packets pass the muxes, both ways (NGLB, section II).
	ModeFullNAT  AttachmentMode = "full-nat"
	ModeNATInMux AttachmentMode = "full-nat in the mux" // of which muxes have the sessions: backends see a mux as the client
)

// MaxAttachments bounds VIP.Attachments: of what a host holds of all networks a VIP has a part.
const MaxAttachments = 4096

// validateAttachments holds that each network has the VIP once, and that nothing is wanted of it that holds for packets
// which muxes see alone.
func (vip VIP) validateAttachments(v *validator) {
	if len(vip.Attachments) == 0 {
		return
	}
	if n := len(vip.Attachments); n > MaxAttachments {
		v.refuse("attachments", "must be at most %d, are %d", MaxAttachments, n)
		return
	}
	first := make(map[string]int, len(vip.Attachments))
	for i, a := range vip.Attachments {
		path := fmt.Sprintf("attachments[%d]", i)
		v.name(path+".network", a.Network)
		v.address(path+".address", a.Address)
		if vip.Address.IsValid() && a.Address.IsValid() && a.Address.Is4() != vip.Address.Is4() {
			v.refuse(path+".address", "must be of the VIP's family (%s), is %s", family(vip.Address), a.Address)
		}
		if a.Mode != ModeBypass && a.Mode != ModeFullNAT && a.Mode != ModeNATInMux {
			v.refuse(path+".mode", "must be %s or %s, is %.64q", ModeBypass, ModeFullNAT, string(a.Mode))
		}
		if j, taken := first[a.Network]; taken {
			v.refuse(path+".network", "is %s again, as attachments[%d]", a.Network, j)
			continue
		}
		first[a.Network] = i
	}
	vip.validateBypass(v)
}

// validateBypass refuses what muxes can't hold of packets that they do not see, and what is of the underlay alone.
func (vip VIP) validateBypass(v *validator) {
	if vip.SNAT != nil {
		v.refuse("snat", "must be left out of a VIP with attachments: workloads leave as VIPs of the underlay only")
	}
	if vip.Fastpath != nil {
		v.refuse("fastpath", "must be left out of a VIP with attachments: it is of the underlay only")
	}
	if vip.Limits != nil && vip.Limits.Packets > 0 {
		v.refuse("limits.packets", "must be left out of a VIP with attachments: muxes do not see the packets that bypass them")
	}
	if vip.Limits != nil && vip.Limits.Bytes > 0 {
		v.refuse("limits.bytes", "must be left out of a VIP with attachments: muxes do not see the packets that bypass them")
	}
	full := slices.ContainsFunc(vip.Attachments, func(a Attachment) bool { return a.Mode != ModeBypass })
	for i, e := range vip.Endpoints {
		if full && e.Protocol == UDP {
			v.refuse(fmt.Sprintf("endpoints[%d].protocol", i), "must be TCP in a VIP with attachments of mode %s", ModeFullNAT)
		}
	}
}
