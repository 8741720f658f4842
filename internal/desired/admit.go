package desired

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/model"
)

// Admit says whether vips, each valid alone, fit together and with s, in which they replace those of
// the same names. It returns them with every host as the name of a node. The paths of its field
// errors begin with vips[i].
func (s State) Admit(vips []model.VIP) ([]model.VIP, error) {
	a := admission{state: s, admitted: make([]model.VIP, len(vips)), after: map[string]model.VIP{}}
	for name, vip := range s.VIPs {
		a.after[name] = vip
	}
	seen := map[string]int{}
	for i, vip := range vips {
		path := fmt.Sprintf("vips[%d]", i)
		if j, twice := seen[vip.Name]; twice {
			a.refuse(path+".name", "is %s again, as vips[%d]", vip.Name, j)
		}
		seen[vip.Name] = i
		a.admitted[i] = a.resolve(path, vip)
		a.after[vip.Name] = a.admitted[i]
	}
	a.index()
	for i, vip := range a.admitted {
		a.vip(fmt.Sprintf("vips[%d]", i), vip)
	}
	return a.admitted, errors.Join(a.errs...)
}

// admission is one call of Admit.
type admission struct {
	state    State
	admitted []model.VIP
	after    map[string]model.VIP // all VIPs as they would be
	errs     []error

	vips    map[netip.Addr][]string // names of the VIPs that have the address
	dips    map[netip.Addr]string   // name of a VIP with a backend, or a tunnel, of the address
	tunnels map[netip.Addr][]place  // backends that the address leads to
	nodes   map[netip.Addr][]string // names of the nodes that have the address
}

// place is where a tunnel address leads.
type place struct{ host, vip string }

func (a *admission) refuse(field, format string, args ...any) {
	a.errs = append(a.errs, &model.FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
}

// index collects who uses which address.
func (a *admission) index() {
	a.vips, a.dips = map[netip.Addr][]string{}, map[netip.Addr]string{}
	a.tunnels, a.nodes = map[netip.Addr][]place{}, map[netip.Addr][]string{}
	for _, vip := range (State{VIPs: a.after}).SortedVIPs() {
		a.vips[vip.Address] = append(a.vips[vip.Address], vip.Name)
		for _, e := range vip.Endpoints {
			for _, b := range e.Backends {
				a.dips[b.Address], a.dips[b.TunnelAddress()] = vip.Name, vip.Name
				at := place{host: b.Host, vip: vip.Name}
				if !slices.Contains(a.tunnels[b.TunnelAddress()], at) {
					a.tunnels[b.TunnelAddress()] = append(a.tunnels[b.TunnelAddress()], at)
				}
			}
		}
	}
	for _, n := range a.state.SortedNodes() {
		for _, address := range n.Addresses {
			a.nodes[address] = append(a.nodes[address], n.Name)
		}
	}
}

// spread is the name of a mux one of whose prefixes has the address, if there is one.
func (a *admission) spread(address netip.Addr) string {
	for _, n := range a.state.Nodes {
		if slices.ContainsFunc(n.Prefixes, func(p netip.Prefix) bool { return p.Contains(address) }) {
			return n.Name
		}
	}
	return ""
}

// vip holds that a VIP's address is its own, and looks at its backends.
func (a *admission) vip(path string, vip model.VIP) {
	for _, other := range a.vips[vip.Address] {
		if other != vip.Name {
			a.refuse(path+".address", "%s is the address of VIP %s already", vip.Address, other)
		}
	}
	if user, used := a.dips[vip.Address]; used {
		a.refuse(path+".address", "%s is the address of a backend of VIP %s", vip.Address, user)
	}
	if nodes := a.nodes[vip.Address]; len(nodes) > 0 {
		a.refuse(path+".address", "%s is an address of node %s", vip.Address, nodes[0])
	}
	if mux := a.spread(vip.Address); mux != "" {
		a.refuse(path+".address", "%s is a source address of mux %s", vip.Address, mux)
	}
	for i, e := range vip.Endpoints {
		for j, b := range e.Backends {
			a.backend(fmt.Sprintf("%s.endpoints[%d].backends[%d]", path, i, j), vip, b)
		}
	}
}

func (a *admission) backend(path string, vip model.VIP, b model.Backend) {
	field := path + ".address"
	if b.Tunnel.IsValid() {
		field = path + ".tunnel"
	}
	// The VIP that has a backend's address is told above, at its own address.
	for _, other := range a.vips[b.Address] {
		if other != vip.Name {
			a.refuse(path+".address", "%s is the address of VIP %s", b.Address, other)
		}
	}
	for _, other := range a.vips[b.Tunnel] {
		a.refuse(field, "%s is the address of VIP %s", b.Tunnel, other)
	}
	for _, other := range a.tunnels[b.TunnelAddress()] {
		if other.host != b.Host {
			a.refuse(field, "%s leads to host %s, by VIP %s: an address belongs to one host",
				b.TunnelAddress(), other.host, other.vip)
			return
		}
	}
	if mux := a.spread(b.TunnelAddress()); mux != "" {
		a.refuse(field, "%s is a source address of mux %s", b.TunnelAddress(), mux)
	}
	if nodes := a.nodes[b.TunnelAddress()]; len(nodes) > 0 && !slices.Contains(nodes, b.Host) {
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
	return vip
}

// host returns the name of the host that is named s or has the address s.
func (a *admission) host(field, s string) string {
	address, err := netip.ParseAddr(s)
	var known []string
	for _, n := range a.state.SortedNodes() {
		if n.Role != model.RoleHost {
			continue
		}
		if n.Name == s || err == nil && slices.Contains(n.Addresses, address) {
			return n.Name
		}
		known = append(known, n.Name)
	}
	if n, other := a.state.Nodes[s]; other {
		a.refuse(field, "%s is a %s, not a host", s, n.Role)
		return s
	}
	a.refuse(field, "no host %q is registered: %s", s, list(known))
	return s
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

// AdmitNode says whether n may register: its name is not taken by a node of another role, and none
// of its addresses is a VIP's, or leads to a backend on another host.
func (s State) AdmitNode(n model.Node) error {
	var errs []error
	if other, taken := s.Nodes[n.Name]; taken && other.Role != n.Role {
		errs = append(errs, &model.FieldError{
			Field: "name", Reason: fmt.Sprintf("%s is registered as a %s already: take another --name", n.Name, other.Role),
		})
	}
	for _, vip := range s.SortedVIPs() {
		for i, p := range n.Prefixes {
			if used := usedIn(p, vip); used.IsValid() {
				errs = append(errs, &model.FieldError{
					Field:  fmt.Sprintf("prefixes[%d]", i),
					Reason: fmt.Sprintf("%s has %s, an address of VIP %s or of its backends", p, used, vip.Name),
				})
			}
		}
		for i, address := range n.Addresses {
			if address == vip.Address {
				errs = append(errs, &model.FieldError{
					Field:  fmt.Sprintf("addresses[%d]", i),
					Reason: fmt.Sprintf("%s is the address of VIP %s", address, vip.Name),
				})
			}
			if host := s.leadsElsewhere(n.Name, address, vip); host != "" {
				errs = append(errs, &model.FieldError{
					Field:  fmt.Sprintf("addresses[%d]", i),
					Reason: fmt.Sprintf("%s leads to a backend of VIP %s on %s", address, vip.Name, host),
				})
			}
		}
	}
	return errors.Join(errs...)
}

// usedIn is an address of vip or of its backends that p has, if there is one.
func usedIn(p netip.Prefix, vip model.VIP) netip.Addr {
	if p.Contains(vip.Address) {
		return vip.Address
	}
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			for _, address := range []netip.Addr{b.Address, b.TunnelAddress()} {
				if p.Contains(address) {
					return address
				}
			}
		}
	}
	return netip.Addr{}
}

// leadsElsewhere returns the host of a backend of vip that address leads to, if it is another machine than node.
func (s State) leadsElsewhere(node string, address netip.Addr, vip model.VIP) string {
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			if b.TunnelAddress() == address && b.Host != node && !slices.Contains(s.Nodes[b.Host].Addresses, address) {
				return b.Host
			}
		}
	}
	return ""
}
