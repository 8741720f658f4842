package compile

import (
	"cmp"
	"fmt"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
)

// attachmentMessages writes what attachments reads.
func attachmentMessages(all []model.Attachment) []*weirv1.Attachment {
	var messages []*weirv1.Attachment
	for _, a := range all {
		p := &weirv1.Attachment{Network: a.Network, Address: OptionalAddress(a.Address), Mode: string(a.Mode)}
		if a.Mode == model.ModeNATInMux {
			p.Mode, p.Nat = string(model.ModeFullNAT), NATMux
		}
		messages = append(messages, p)
	}
	return messages
}

func (f *Fields) attachments(path string, all []*weirv1.Attachment) []model.Attachment {
	var attachments []model.Attachment
	for i, p := range all {
		f.enter(path, i)
		attachments = append(attachments, model.Attachment{
			Network: p.GetNetwork(), Address: f.Address("address", p.GetAddress()),
			Mode: f.attachmentMode(p),
		})
		f.leave()
	}
	return attachments
}

// NATHost and NATMux are where full NAT changes addresses: the values of the field nat.
const (
	NATHost = "host"
	NATMux  = "mux"
)

// attachmentMode reads the fields mode and nat.
func (f *Fields) attachmentMode(p *weirv1.Attachment) model.AttachmentMode {
	mode, nat := cmp.Or(model.AttachmentMode(p.GetMode()), model.ModeBypass), p.GetNat()
	switch {
	case mode == model.ModeNATInMux:
		f.Refuse("mode", "must be %s or %s, is %.64q", model.ModeBypass, model.ModeFullNAT, p.GetMode())
		return model.ModeFullNAT
	case nat == "":
	case mode != model.ModeFullNAT:
		f.Refuse("nat", "is of mode %s alone", model.ModeFullNAT)
	case nat == NATMux:
		return model.ModeNATInMux
	case nat != NATHost:
		f.Refuse("nat", "must be %s or %s, is %.64q", NATHost, NATMux, nat)
	}
	return mode
}

// NetworkMessage writes n without the fields that are output only.
func NetworkMessage(n vnet.Network) *weirv1.VirtualNetwork {
	p := &weirv1.VirtualNetwork{
		Name: n.Name, Tenant: n.Tenant, Labels: n.Labels, Vni: n.VNI, Prefixes: PrefixTexts(n.Prefixes), Mtu: n.MTU,
		Gateway: &weirv1.NetworkGateway{Mac: n.GatewayMAC.String()}, AllowedTenants: n.AllowedTenants,
	}
	if len(n.WithoutAgent) > 0 || n.Reply != vnet.ReplyRelay {
		p.WithoutAgent = &weirv1.WithoutAgent{Vteps: AddressTexts(n.WithoutAgent), Reply: string(n.Reply)}
	}
	for _, w := range n.Workloads {
		p.Workloads = append(p.Workloads, &weirv1.NetworkWorkload{
			Name: w.Name, Addresses: AddressTexts(w.Addresses), Mac: w.MAC.String(), Host: w.Host, Interface: w.Interface,
		})
	}
	return p
}

// Network reads, completes with defaults and validates a virtual network. Fields that are output only are left aside.
func Network(p *weirv1.VirtualNetwork) (vnet.Network, error) {
	return validated(network(p))
}

// StoredNetwork is to Network what StoredVIP is to VIP.
func StoredNetwork(p *weirv1.VirtualNetwork) (vnet.Network, error) {
	return read(network(p))
}

func network(p *weirv1.VirtualNetwork) (vnet.Network, *Fields) {
	var f Fields
	n := vnet.Network{
		Name: p.GetName(), Tenant: cmp.Or(p.GetTenant(), model.DefaultTenant), Labels: p.GetLabels(),
		VNI: p.GetVni(), Prefixes: f.Prefixes("prefixes", p.GetPrefixes()), MTU: cmp.Or(p.GetMtu(), vnet.DefaultMTU),
		GatewayMAC: vnet.DefaultGatewayMAC, AllowedTenants: p.GetAllowedTenants(),
		WithoutAgent: f.Addresses("withoutAgent.vteps", p.GetWithoutAgent().GetVteps()),
		Reply:        cmp.Or(vnet.Reply(p.GetWithoutAgent().GetReply()), vnet.ReplyRelay),
	}
	if p.GetGateway().GetMac() != "" {
		n.GatewayMAC = f.MAC("gateway.mac", p.GetGateway().GetMac())
	}
	for i, w := range p.GetWorkloads() {
		f.enter("workloads", i)
		n.Workloads = append(n.Workloads, vnet.Workload{
			Name: w.GetName(), Addresses: f.Addresses("addresses", w.GetAddresses()), MAC: f.MAC("mac", w.GetMac()),
			Host: w.GetHost(), Interface: w.GetInterface(),
		})
		f.leave()
	}
	return n, &f
}

// MAC reads an Ethernet address that must be there.
func (f *Fields) MAC(path, s string) vnet.MAC {
	if s == "" {
		f.Refuse(path, "is required")
		return vnet.MAC{}
	}
	mac, err := vnet.ParseMAC(s)
	if err != nil {
		f.Refuse(path, "%v", err)
	}
	return mac
}

// Networks reads several; the paths of its field errors begin with networks[i].
func Networks(all []*weirv1.VirtualNetwork) ([]vnet.Network, error) {
	var networks []vnet.Network
	var errs model.FieldErrorList
	for i, p := range all {
		n, err := Network(p)
		networks = append(networks, n)
		errs.Below(fmt.Sprintf("networks[%d]", i), err)
	}
	return networks, errs.Err()
}

// OverlayMessage writes o without the fields that are output only.
func OverlayMessage(o vnet.Overlay) *weirv1.Overlay {
	return &weirv1.Overlay{
		Name: vnet.OverlayName, Labels: o.Labels, Addresses: AddressTexts(o.Addresses), LocalPrefixes: PrefixTexts(o.LocalPrefixes),
	}
}

// Overlay reads, completes with defaults and validates the overlay. Fields that are output only are left aside.
func Overlay(p *weirv1.Overlay) (vnet.Overlay, error) {
	return validated(overlay(p))
}

// StoredOverlay is to Overlay what StoredVIP is to VIP.
func StoredOverlay(p *weirv1.Overlay) (vnet.Overlay, error) {
	return read(overlay(p))
}

func overlay(p *weirv1.Overlay) (vnet.Overlay, *Fields) {
	var f Fields
	if name := p.GetName(); name != vnet.OverlayName {
		f.Refuse("name", "must be %s, as there is one overlay only, is %.64q", vnet.OverlayName, name)
	}
	o := vnet.Overlay{
		Labels: p.GetLabels(), Addresses: f.Addresses("addresses", p.GetAddresses()),
		LocalPrefixes: f.Prefixes("localPrefixes", p.GetLocalPrefixes()),
	}
	if len(p.GetLocalPrefixes()) == 0 {
		o.LocalPrefixes = slices.Clone(vnet.DefaultLocalPrefixes)
	}
	return o, &f
}

// Overlays reads the one that there may be; the paths of its field errors begin with overlays[0].
func Overlays(all []*weirv1.Overlay) (*vnet.Overlay, error) {
	switch len(all) {
	case 0:
		return nil, nil //nolint:nilnil // none was written
	case 1:
		o, err := Overlay(all[0])
		return &o, Below("overlays[0]", err)
	}
	return nil, &model.FieldError{Field: "overlays[1]", Reason: "there is one overlay only"}
}
