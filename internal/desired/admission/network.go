package admission

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
)

// WithNetworks is s with networks in the place of those of the same names, and with the overlay, unless that is nil.
func WithNetworks(s desired.State, networks []vnet.Network, overlay *vnet.Overlay) desired.State {
	if len(networks) == 0 && overlay == nil {
		return s
	}
	s = s.Clone()
	if overlay != nil {
		s.Networks.Overlay = overlay
	}
	for _, n := range networks {
		s.Networks.Put(n)
	}
	return s
}

// Networks says whether networks, each valid alone, fit together and with s, in which they replace those of the same
// names, and within what their tenants may have. It returns them with every host as the name of a node. Of a tenant that
// there is none of anything is admitted, unless all are confined. Hosts that have not joined are waited for, unless strict.
// The paths of its field errors begin with networks[i].
func Networks(s desired.State, networks []vnet.Network, tenants *Tenants, confined, strict bool) ([]vnet.Network, error) {
	if len(networks) == 0 {
		return nil, nil
	}
	a := networkAdmission{admission: admission{State: s, strict: strict}, tenants: tenants, confined: confined}
	resolved := make([]vnet.Network, len(networks))
	seen := map[string]int{}
	for i, n := range networks {
		path := fmt.Sprintf("networks[%d]", i)
		if j, twice := seen[n.Name]; twice {
			a.refuse(path+".name", "is %s again, as networks[%d]", n.Name, j)
		}
		seen[n.Name] = i
		resolved[i] = a.resolveNetwork(path, n)
	}
	before := s.Networks
	a.State = s.Clone()
	for _, n := range resolved {
		a.Networks.Remove(n.Name)
	}
	for i, n := range resolved {
		a.network(fmt.Sprintf("networks[%d]", i), n)
		a.Networks.Put(n)
	}
	if a.Networks.Len() > max(vnet.MaxNetworks, before.Len()) {
		a.refuse("networks", "there may be %d networks, and would be %d", vnet.MaxNetworks, a.Networks.Len())
	}
	a.roomForNetworks("networks", before)
	for i, n := range resolved {
		a.quotas(fmt.Sprintf("networks[%d]", i), n.Tenant, before)
	}
	return resolved, a.errs.Err()
}

// roomForNetworks holds that muxes and hosts have room for what virtual networks need, unless it was as much before.
func (a *admission) roomForNetworks(field string, before network.Set) {
	wereAttached, werePlaced := network.Rows(before)
	attached, placed := network.Rows(a.Networks)
	if attached > max(vnet.MaxAttachments, wereAttached) {
		a.refuse(field, "there may be %d attachments of all VIPs, and would be %d", vnet.MaxAttachments, attached)
	}
	if placed > max(vnet.MaxPlaces, werePlaced) {
		a.refuse(field, "there may be workloads of networks in %d places, each a host that one network has some on, and would be in %d", vnet.MaxPlaces, placed)
	}
}

// networkAdmission is one call of Networks.
type networkAdmission struct {
	admission

	tenants  *Tenants
	confined bool
}

// resolveNetwork returns n with hosts that were given by an address turned into names of nodes.
func (a *networkAdmission) resolveNetwork(path string, n vnet.Network) vnet.Network {
	n.Workloads = slices.Clone(n.Workloads)
	for i := range n.Workloads {
		w := &n.Workloads[i]
		w.Host = a.host(fmt.Sprintf("%s.workloads[%d].host", path, i), w.Host)
	}
	return n
}

// network looks at one that State does not hold yet.
func (a *networkAdmission) network(path string, n vnet.Network) {
	if other, taken := a.Networks.OfVNI(n.VNI); taken {
		a.refuse(path+".vni", "%d is that of %s already", n.VNI, otherNetwork(other, n.Tenant))
	}
	for i, p := range n.Prefixes {
		if o := a.Networks.Overlay; o != nil && slices.ContainsFunc(o.LocalPrefixes, p.Overlaps) {
			a.refuse(fmt.Sprintf("%s.prefixes[%d]", path, i), "%s overlaps %s, by which servers know clients: the overlay's localPrefixes",
				p, o.Local(p.Addr().Is4()))
		}
	}
	a.workloads(path, n)
	a.withoutAgent(path, n)
	a.attachedTo(path, n)
}

// withoutAgent holds that VTEPs are no addresses of the cluster's own, and those of the network's tenant: servers send to
// them what is answered to whoever says that they are it.
func (a *networkAdmission) withoutAgent(path string, n vnet.Network) {
	tenant, there := a.tenants.all[n.Tenant]
	for i, vtep := range n.WithoutAgent {
		at := fmt.Sprintf("%s.withoutAgent.vteps[%d]", path, i)
		if reason := ofOverlay(a.State, vtep); reason != "" {
			a.refuse(at, "%s %s", vtep, reason)
		}
		for u := range a.Addresses.In(netip.PrefixFrom(vtep, vtep.BitLen())) {
			a.refuse(at, "%s is in use already: hosts with an agent are named by their workloads", u.Address)
			break
		}
		inside := slices.ContainsFunc(tenant.Backends.Prefixes, func(p netip.Prefix) bool { return p.Contains(vtep) })
		if (there || a.confined) && !inside {
			a.refuse(at, "%s is not in backends.prefixes of tenant %s", vtep, n.Tenant)
		}
	}
}

// otherNetwork is how a tenant is told of another network.
func otherNetwork(other vnet.Network, tenant string) string {
	if other.Tenant != tenant {
		return "another tenant's network"
	}
	return "network " + other.Name
}

// workloads holds that they live on hosts of their tenant, behind interfaces that no other network has.
func (a *networkAdmission) workloads(path string, n vnet.Network) {
	tenant, there := a.tenants.all[n.Tenant]
	ports := map[network.Port]int{}
	for i, w := range n.Workloads {
		at, port := fmt.Sprintf("%s.workloads[%d]", path, i), network.Port{Host: w.Host, Interface: w.Interface}
		if other, taken := a.Networks.OfPort(port); taken {
			of, _ := a.Networks.Get(other)
			a.refuse(at+".interface", "%s of %s is in %s already", w.Interface, w.Host, otherNetwork(of, n.Tenant))
		}
		if j, taken := ports[port]; taken { // by the host's name, and by an address of it
			a.refuse(at+".interface", "%s of %s is that of workloads[%d] too", w.Interface, w.Host, j)
		}
		ports[port] = i
		if (there || a.confined) && !slices.Contains(tenant.Backends.Hosts, w.Host) {
			a.refuse(at+".host", "%s is not in backends.hosts of tenant %s", w.Host, n.Tenant)
		}
	}
}

// attachedTo holds that no VIP which the network allows has an address of a workload, or of another VIP.
func (a *networkAdmission) attachedTo(path string, n vnet.Network) {
	a.Networks.Put(n)
	last := network.Attached{}
	for at := range a.Networks.Allowed(n.Name) {
		if at.Address == last.Address {
			a.refuse(path+".allowedTenants", "%s would be the address of %s and of %s: one must be detached first",
				at.Address, a.vipFor(last.VIP, n.Tenant), a.vipFor(at.VIP, n.Tenant))
		}
		last = at
		if i, j := workloadAt(n, at.Address); i >= 0 {
			a.refuse(fmt.Sprintf("%s.workloads[%d].addresses[%d]", path, i, j), "%s is the address of %s", at.Address, a.vipFor(at.VIP, n.Tenant))
		}
	}
}

// vipFor is how a tenant is told of a VIP.
func (a *admission) vipFor(name, tenant string) string {
	return a.other(name, model.VIP{Tenant: tenant})
}

// workloadAt says which workload of a network has an address, and which of its addresses that is; -1: none.
func workloadAt(n vnet.Network, address netip.Addr) (workload, index int) {
	if !n.Contains(address) {
		return -1, -1
	}
	for i, w := range n.Workloads {
		if j := slices.Index(w.Addresses, address); j >= 0 {
			return i, j
		}
	}
	return -1, -1
}

// quotas compares what a tenant has of networks before and after with its limits.
func (a *networkAdmission) quotas(path, tenant string, before network.Set) {
	limits, was, is := a.tenants.all[tenant].Limits, before.Usage(tenant), a.Networks.Usage(tenant)
	a.quota(path+".tenant", tenant, "virtual networks", limits.Networks, was.Networks, is.Networks)
	a.quota(path+".workloads", tenant, "workloads in virtual networks", limits.Workloads, was.Workloads, is.Workloads)
}

func (a *admission) quota(field, tenant, what string, limit *uint32, before, after uint32) {
	if limit != nil && after > *limit && after > before {
		a.refuse(field, "tenant %s may have %d %s, and would have %d", tenant, *limit, what, after)
	}
}

// attachments holds that the networks of a VIP allow it, and that its addresses there are nobody else's. One that the VIP
// had before may stay although it is not allowed any more: it is not in force.
func (a *admission) attachments(path string, was, vip model.VIP) {
	for i, at := range vip.Attachments {
		field := fmt.Sprintf("%s.attachments[%d]", path, i)
		switch state := a.Networks.StateOf(vip.Tenant, at); {
		case state == network.InForce:
			a.attachment(field, vip, at)
		case slices.Contains(was.Attachments, at) && was.Tenant == vip.Tenant:
		case state == network.NoOverlay:
			a.refuse(field, "the cluster has no overlay: an admin applies one first")
		default: // tenants don't learn of networks that do not allow them
			a.refuse(field+".network", "no network %s allows tenant %s: its own tenant names that in allowedTenants", at.Network, vip.Tenant)
		}
	}
}

func (a *admission) attachment(field string, vip model.VIP, at model.Attachment) {
	n, _ := a.Networks.Get(at.Network)
	for other := range a.Networks.Attached(at.Network) {
		if other.VIP != vip.Name && other.Address == at.Address {
			a.refuse(field+".address", "%s is the address of %s in network %s already", at.Address, a.other(other.VIP, vip), at.Network)
		}
	}
	if i, _ := workloadAt(n, at.Address); i >= 0 {
		a.refuse(field+".address", "%s is the address of a workload of network %s", at.Address, at.Network)
	}
}

// ofOverlay says what of the overlay an address is, or nothing.
func ofOverlay(s desired.State, address netip.Addr) (reason string) {
	o := s.Networks.Overlay
	switch {
	case o == nil:
	case slices.Contains(o.Addresses, address):
		return "is an address of the overlay"
	case slices.ContainsFunc(o.LocalPrefixes, func(p netip.Prefix) bool { return p.Contains(address) }):
		return fmt.Sprintf("is in %s, by which servers know clients of virtual networks", o.Local(address.Is4()))
	}
	return ""
}

// Overlay says whether the overlay, valid alone, fits with s: its addresses are nobody's, and its local prefixes have none
// of a VIP, a backend or a node, and no virtual network in them. The paths of its field errors begin with overlays[0].
func Overlay(s desired.State, o vnet.Overlay) error {
	a := admission{State: s}
	for i, address := range o.Addresses {
		field := fmt.Sprintf("overlays[0].addresses[%d]", i)
		for u := range s.Addresses.In(netip.PrefixFrom(address, address.BitLen())) {
			a.refuse(field, "%s is %s", address, used(u))
			break
		}
		if mux := spread(s, address); mux != "" {
			a.refuse(field, "%s is in a prefix of mux %s", address, mux)
		}
		for pool := range s.Pools.Values() {
			if pool.Covers(address) && !pool.Excludes(address) {
				a.refuse(field, "%s is of pool %s: exclude it there", address, pool.Name)
			}
		}
	}
	for i, p := range o.LocalPrefixes {
		field := fmt.Sprintf("overlays[0].localPrefixes[%d]", i)
		for u := range s.Addresses.In(p) {
			a.refuse(field, "%s has %s, which is %s", p, u.Address, used(u))
			break
		}
		for n := range s.Networks.All() {
			if slices.ContainsFunc(n.Prefixes, p.Overlaps) {
				a.refuse(field, "%s overlaps a prefix of network %s", p, n.Name)
				break
			}
		}
		for mux := range s.MuxNodes() {
			if slices.ContainsFunc(mux.NATPrefixes, p.Overlaps) {
				a.refuse(field, "%s overlaps a NAT prefix of mux %s", p, mux.Name)
			}
		}
	}
	return a.errs.Err()
}

// used says for an admin what uses an address.
func used(u desired.Use) string {
	switch u.As {
	case desired.AsVIP:
		return "the address of VIP " + u.Name
	case desired.AsNode:
		return "an address of node " + u.Name
	}
	return "the address of a backend of VIP " + u.Name
}

// NetworkRemoval says why the network must stay: a VIP is attached. seen says which the caller may see.
func NetworkRemoval(s desired.State, name string, seen func(model.VIP) bool) error {
	var names []string
	others := 0
	for at := range s.Networks.Attached(name) {
		if seen(s.VIPs.At(at.VIP)) {
			names = append(names, at.VIP)
		} else {
			others++
		}
	}
	if len(names)+others == 0 {
		return nil
	}
	who := list(names)
	if len(names) == 0 {
		who = "of other tenants"
	}
	return &model.FieldError{Field: "name", Reason: fmt.Sprintf(
		"%s has %d VIPs (%s): detach them, or take their tenants out of allowedTenants first", name, len(names)+others, who)}
}

// OverlayRemoval says why the overlay must stay: a VIP is attached to a network.
func OverlayRemoval(s desired.State) error {
	for n := range s.Networks.All() {
		for at := range s.Networks.Attached(n.Name) {
			return &model.FieldError{Field: "name", Reason: fmt.Sprintf("VIP %s is attached to network %s: detach it first", at.VIP, n.Name)}
		}
	}
	return nil
}
