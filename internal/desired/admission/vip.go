package admission

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// VIPs says whether vips, each valid alone, fit together and with s, in which they replace those of
// the same names. It returns them with every host as the name of a node, and with an address from their
// pool if they asked for one. Hosts that have not joined are waited for, unless strict. The paths of its field errors
// begin with vips[i].
func VIPs(s desired.State, vips []model.VIP, strict bool) ([]model.VIP, error) {
	a := admission{strict: strict, State: s.Clone(), admitted: make([]model.VIP, len(vips)), searched: map[netip.Prefix]netip.Addr{}}
	seen := map[string]int{}
	for i, vip := range vips {
		path := fmt.Sprintf("vips[%d]", i)
		if j, twice := seen[vip.Name]; twice {
			a.refuse(path+".name", "is %s again, as vips[%d]", vip.Name, j)
		}
		seen[vip.Name] = i
		a.admitted[i] = a.resolve(path, vip)
		if !vip.Address.IsValid() {
			a.admitted[i].Address = keptAddress(s, vip)
		}
		a.PutVIP(a.admitted[i])
	}
	for i, vip := range a.admitted {
		path := fmt.Sprintf("vips[%d]", i)
		if !vip.Address.IsValid() {
			vip = a.allocate(path, vip)
			a.admitted[i] = vip
			a.PutVIP(vip)
		}
		a.pooled(path, vip)
		a.vip(path, vip)
		a.attachments(path, s.VIPs.At(vip.Name), vip)
		checks(&a, path, s.VIPs.At(vip.Name), vip)
	}
	a.roomForNetworks("vips", s.Networks)
	a.roomForSteering(s)
	a.roomForMultipath(s)
	return a.admitted, a.errs.Err()
}

// admission is one call of VIPs.
type admission struct {
	desired.State // as it would be
	strict        bool
	admitted      []model.VIP
	errs          model.FieldErrorList
	searched      map[netip.Prefix]netip.Addr // where to go on to look for a free address of a pool's prefix
	hosts         string                      // what knownHosts says, once it was asked
}

func (a *admission) refuse(field, format string, args ...any) {
	a.errs.Refuse(field, format, args...)
}

// other is how the writer of vip is told of another VIP: tenants don't learn each other's names.
func (a *admission) other(name string, vip model.VIP) string {
	if a.VIPs.At(name).Tenant != vip.Tenant {
		return "a VIP of another tenant"
	}
	return "VIP " + name
}

// dip is the name of a VIP with a backend, or a tunnel, of the address.
func (a *admission) dip(address netip.Addr) (vip string, is bool) {
	for u := range a.Addresses.Of(address, desired.AsBackend) {
		vip, is = u.Name, true
	}
	for u := range a.Addresses.Of(address, desired.AsTunnel) {
		vip, is = u.Name, true
	}
	return vip, is
}

// spread is the name of a mux one of whose prefixes has the address, of its sources or of full NAT, if there is one.
func spread(s desired.State, address netip.Addr) string {
	for n := range s.MuxNodes() {
		has := func(p netip.Prefix) bool { return p.Contains(address) }
		if slices.ContainsFunc(n.Prefixes, has) || slices.ContainsFunc(n.NATPrefixes, has) {
			return n.Name
		}
	}
	return ""
}

// vip holds that a VIP's address is its own, and looks at its backends.
func (a *admission) vip(path string, vip model.VIP) {
	for u := range a.Addresses.Of(vip.Address, desired.AsVIP) {
		if u.Name != vip.Name {
			a.refuse(path+".address", "%s is the address of %s already", vip.Address, a.other(u.Name, vip))
		}
	}
	for u := range a.Addresses.Of(vip.Address, desired.AsTIP) {
		a.refuse(path+".address", "%s is a TIP of %s", vip.Address, a.other(u.Name, vip))
		break
	}
	if holder := a.holder(vip.Address, vip); holder != "" {
		a.refuse(path+".address", "%s is still in a switch as a TIP of %s: apply this when it is gone from there", vip.Address, holder)
	}
	a.tips(path+".hardware", vip)
	if user, used := a.dip(vip.Address); used {
		a.refuse(path+".address", "%s is the address of a backend of %s", vip.Address, a.other(user, vip))
	}
	for u := range a.Addresses.Of(vip.Address, desired.AsNode) {
		a.refuse(path+".address", "%s is an address of node %s", vip.Address, u.Name)
		break
	}
	if mux := spread(a.State, vip.Address); mux != "" {
		a.refuse(path+".address", "%s is in a prefix of mux %s", vip.Address, mux)
	}
	if reason := ofOverlay(a.State, vip.Address); reason != "" {
		a.refuse(path+".address", "%s %s", vip.Address, reason)
	}
	for i, e := range vip.Endpoints {
		for j, b := range e.Backends {
			a.backend(fmt.Sprintf("%s.endpoints[%d].backends[%d]", path, i, j), vip, b)
		}
		a.portFree(fmt.Sprintf("%s.endpoints[%d].port", path, i), vip, e)
		a.named(fmt.Sprintf("%s.endpoints[%d]", path, i), vip, e)
	}
	if vip.SNAT != nil {
		a.snat(path+".snat", vip)
	}
	if reason := scrubs(a.State, vip); reason != "" {
		a.refuse(fmt.Sprintf("%s.overload.steps[%d].scrubber", path, vip.Overload.Step(model.ActionScrub)), "%s", reason)
	}
}

func (a *admission) backend(path string, vip model.VIP, b model.Backend) {
	field := path + ".address"
	if b.Tunnel.IsValid() {
		field = path + ".tunnel"
	}
	// The VIP that has a backend's address is told above, at its own address.
	for u := range a.Addresses.Of(b.Address, desired.AsVIP) {
		if u.Name != vip.Name {
			a.refuse(path+".address", "%s is the address of %s", b.Address, a.other(u.Name, vip))
		}
	}
	for u := range a.Addresses.Of(b.Tunnel, desired.AsVIP) {
		a.refuse(field, "%s is the address of %s", b.Tunnel, a.other(u.Name, vip))
	}
	for _, address := range []netip.Addr{b.Address, b.TunnelAddress()} {
		for u := range a.Addresses.Of(address, desired.AsTIP) {
			a.refuse(field, "%s is a TIP of %s", address, a.other(u.Name, vip))
			return
		}
	}
	for other := range a.Addresses.Of(b.TunnelAddress(), desired.AsTunnel) {
		if other.Host != b.Host {
			a.refuse(field, "%s leads to host %s, by %s: an address belongs to one host",
				b.TunnelAddress(), other.Host, a.other(other.Name, vip))
			return
		}
	}
	if reason := ofOverlay(a.State, b.Address); reason != "" {
		a.refuse(path+".address", "%s %s", b.Address, reason)
	}
	if reason := ofOverlay(a.State, b.Tunnel); reason != "" {
		a.refuse(field, "%s %s", b.Tunnel, reason)
	}
	if mux := spread(a.State, b.Tunnel); mux != "" {
		a.refuse(field, "%s is in a prefix of mux %s", b.Tunnel, mux)
	}
	if mux := spread(a.State, b.Address); mux != "" {
		a.refuse(path+".address", "%s is in a prefix of mux %s", b.Address, mux)
	}
	var nodes []string
	for u := range a.Addresses.Of(b.TunnelAddress(), desired.AsNode) {
		nodes = append(nodes, u.Name)
	}
	if len(nodes) > 0 && !slices.Contains(nodes, b.Host) {
		a.refuse(field, "%s is an address of node %s, not of %s", b.TunnelAddress(), nodes[0], b.Host)
	}
}

// resolve returns vip with hosts that were given by an address turned into names of nodes.
func (a *admission) resolve(path string, vip model.VIP) model.VIP {
	vip.Endpoints = slices.Clone(vip.Endpoints)
	for i := range vip.Endpoints {
		e := &vip.Endpoints[i]
		e.Backends = slices.Clone(e.Backends)
		for j := range e.Backends {
			field := fmt.Sprintf("%s.endpoints[%d].backends[%d].host", path, i, j)
			e.Backends[j].Host = a.host(field, e.Backends[j].Host)
		}
	}
	if vip.SNAT != nil {
		s := *vip.SNAT
		s.Workloads = slices.Clone(s.Workloads)
		for i := range s.Workloads {
			w := &s.Workloads[i]
			w.Host = a.host(fmt.Sprintf("%s.snat.workloads[%d].host", path, i), w.Host)
		}
		vip.SNAT = &s
	}
	return vip
}

// host returns the name of the host that is named s or has the address s. One that has not joined is given by its name.
func (a *admission) host(field, s string) string {
	named, there := a.Nodes.Get(s)
	if there && named.Role == model.RoleHost {
		return s
	}
	address, err := netip.ParseAddr(s)
	if err == nil {
		for u := range a.Addresses.Of(address, desired.AsNode) {
			if a.Nodes.At(u.Name).Role == model.RoleHost {
				return u.Name
			}
		}
	}
	if there {
		a.refuse(field, "%s is a %s, not a host", s, named.Role)
		return s
	}
	if !a.strict && err != nil {
		return s // is waited for
	}
	if err == nil && !a.strict {
		a.refuse(field, "no host with the address %s has joined: %s; one that has not yet is given by its name", s, knownHosts(a))
		return s
	}
	a.refuse(field, "no host %q is registered: %s", s, knownHosts(a))
	return s
}

// knownHosts names the hosts that there are. A request may have thousands of others: they are looked through once.
func knownHosts(a *admission) string {
	if a.hosts == "" {
		var known []string
		for n := range a.Nodes.Values() {
			if n.Role == model.RoleHost {
				known = append(known, n.Name)
			}
		}
		a.hosts = list(known)
	}
	return a.hosts
}

// list names at most ten hosts.
func list(known []string) string {
	const most = 10
	switch {
	case len(known) == 0:
		return "there is none yet, start weir-agent on it first"
	case len(known) > most:
		return fmt.Sprintf("there are %s and %d more", strings.Join(known[:most], ", "), len(known)-most)
	}
	return "there are " + strings.Join(known, ", ")
}
