package model

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
)

var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// ValidName says whether s is a DNS label, as names of VIPs, tenants and nodes must be.
func ValidName(s string) bool { return dnsLabel.MatchString(s) }

// validator collects every reason. Its methods look at single fields, the validate methods of types at a whole.
type validator struct{ errs FieldErrorList }

func (v *validator) refuse(field, format string, args ...any) { v.errs.Refuse(field, format, args...) }

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8") // RFC 1122, section 3.2.1.3
	broadcast   = netip.AddrFrom4([4]byte{255, 255, 255, 255})
)

func (v *validator) name(field, s string) {
	switch {
	case s == "":
		v.refuse(field, "is required")
	case !ValidName(s):
		v.refuse(field, "must be a DNS label (lower-case letters, digits and -, at most 63), is %.64q", s)
	}
}

func (v *validator) address(field string, a netip.Addr) {
	switch {
	case !a.IsValid():
		v.refuse(field, "must be an IP address")
	case a.Is4In6():
		v.refuse(field, "must be written as IPv4, is %s", a)
	case a.Zone() != "":
		v.refuse(field, "must have no zone, is %s", a)
	case a.IsUnspecified(), a.IsMulticast(), a.IsLoopback(), a.IsLinkLocalUnicast(), thisNetwork.Contains(a), a == broadcast:
		v.refuse(field, "must be a routable unicast address, is %s", a)
	}
}

// Validate says everything that is wrong with the node taken alone, as joined FieldErrors.
func (n Node) Validate() error {
	var v validator
	v.name("name", n.Name)
	if len(n.Addresses) == 0 {
		v.refuse("addresses", "must have at least one")
	}
	for i, a := range n.Addresses {
		field := fmt.Sprintf("addresses[%d]", i)
		v.address(field, a)
		if j := slices.Index(n.Addresses, a); j < i {
			v.refuse(field, "is %s again, as addresses[%d]", a, j)
		}
	}
	for i, p := range n.Prefixes {
		v.prefix(fmt.Sprintf("prefixes[%d]", i), n.Role, p)
	}
	return v.errs.Err()
}

// The shortest prefixes that a mux may spread its outer sources over: hosts accept packets from all of it.
const (
	shortest4 = 16
	shortest6 = 32
)

func (v *validator) prefix(field string, role Role, p netip.Prefix) {
	shortest := shortest6
	if p.Addr().Is4() {
		shortest = shortest4
	}
	switch {
	case !p.IsValid():
		v.refuse(field, "must be a prefix such as 10.9.0.0/24")
	case role != RoleMux:
		v.refuse(field, "is for muxes only, is %s", p)
	case p != p.Masked():
		v.refuse(field, "must have no bits set behind its length, is %s", p)
	case p.Bits() < shortest:
		v.refuse(field, "must be at least %d bits long, is %s", shortest, p)
	default:
		v.address(field, p.Addr())
	}
}

// Validate says everything that is wrong with the VIP taken alone, as joined FieldErrors.
func (vip VIP) Validate() error {
	var v validator
	v.name("name", vip.Name)
	v.name("tenant", vip.Tenant)
	vip.validateAddress(&v)
	oneOf(&v, "consistency", vip.Consistency, ConsistencyAuto, ConsistencyFlowTable)
	oneOf(&v, "ping", vip.Ping, PingAnswer, PingIgnore)
	if vip.FlowLimit > MaxFlowLimit {
		v.refuse("flowLimit", "must be at most %d, is %d", MaxFlowLimit, vip.FlowLimit)
	}
	switch {
	case vip.SNAT != nil:
		vip.SNAT.validate(&v, vip)
	case len(vip.Endpoints) == 0:
		v.refuse("endpoints", "must have at least one, unless there is snat")
	}
	vip.validateFastpath(&v)
	vip.validateLimits(&v)
	vip.validateOverload(&v)
	vip.validateAttachments(&v)
	first := make(map[EndpointKey]int, len(vip.Endpoints))
	for i, e := range vip.Endpoints {
		path := fmt.Sprintf("endpoints[%d]", i)
		key := EndpointKey{VIP: vip.Address, Protocol: e.Protocol, Port: e.Port}
		if j, taken := first[key]; taken {
			v.refuse(path, "is %s again, as endpoints[%d]", portName(e), j)
		} else {
			first[key] = i
		}
		e.validate(&v, path, vip.Address)
	}
	return v.errs.Err()
}

// validateAddress holds that the VIP has an address, or a pool to take one from.
func (vip VIP) validateAddress(v *validator) {
	if vip.Address.IsValid() || vip.Pool == "" {
		v.address("address", vip.Address)
	}
	if vip.Pool != "" {
		v.name("pool", vip.Pool)
	}
	oneOf(v, "family", vip.Family, IPv4, IPv6)
	switch {
	case vip.Family == "":
	case vip.Pool == "":
		v.refuse("family", "is for VIPs that take their address from a pool")
	case vip.Address.IsValid() && !vip.Family.Of(vip.Address):
		v.refuse("family", "is %s, the address is %s", vip.Family, vip.Address)
	}
	if vip.Address.IsValid() || vip.Pool == "" {
		return
	}
	for i, e := range vip.Endpoints {
		for j, b := range e.Backends {
			if wanted := vip.WantedFamily(); b.Address.IsValid() && !wanted.Of(b.Address) {
				v.refuse(fmt.Sprintf("endpoints[%d].backends[%d].address", i, j),
					"must be of the VIP's family (%s), is %s", wanted, b.Address)
			}
		}
	}
}

// portName is "TCP 80" or "TCP, all ports".
func portName(e Endpoint) string {
	if e.Port == AllPorts {
		return fmt.Sprintf("%s, all ports", e.Protocol)
	}
	return fmt.Sprintf("%s %d", e.Protocol, e.Port)
}

// oneOf holds that s, if there is any, is one of two.
func oneOf[T ~string](v *validator, field string, s, first, second T) {
	if s != "" && s != first && s != second {
		v.refuse(field, "must be %s or %s, is %.64q", first, second, string(s))
	}
}

func (e Endpoint) validate(v *validator, path string, vip netip.Addr) {
	if e.Protocol != TCP && e.Protocol != UDP {
		v.refuse(path+".protocol", "must be TCP or UDP")
	}
	oneOf(v, path+".allUnhealthy", e.AllUnhealthy, KeepAll, Refuse)
	oneOf(v, path+".affinity", e.Affinity, AffinityNone, AffinityClient)
	if e.IdleTimeout != 0 && (e.IdleTimeout < MinIdle || e.IdleTimeout > MaxIdle) {
		v.refuse(path+".idleTimeout", "must be %s to %s, is %s", MinIdle, MaxIdle, e.IdleTimeout)
	}
	e.validateSYNCookies(v, path+".synCookies")
	v.sources(path+".allow", vip, e.Allow)
	v.sources(path+".deny", vip, e.Deny)
	v.lists(path+".allowLists", e.AllowLists)
	v.lists(path+".denyLists", e.DenyLists)
	if e.HealthCheck != nil {
		for _, p := range e.HealthCheck.Problems(path + ".healthCheck") {
			v.refuse(p.Field, "%s", p.Reason)
		}
		if e.Port == AllPorts && e.HealthCheck.Port == 0 {
			v.refuse(path+".healthCheck.port", "is required for an endpoint of all ports")
		}
	}
	e.validateBackends(v, path, vip)
}

func (e Endpoint) validateBackends(v *validator, path string, vip netip.Addr) {
	if len(e.Backends) > MaxBackends {
		v.refuse(path+".backends", "must be at most %d, are %d", MaxBackends, len(e.Backends))
	}
	identity := make(map[netip.AddrPort]int, len(e.Backends))
	tunnel := make(map[netip.Addr]int, len(e.Backends))
	for i, b := range e.Backends {
		at := fmt.Sprintf("%s.backends[%d]", path, i)
		b.validate(v, at, vip, e)
		if !b.Address.IsValid() {
			continue
		}
		if j, taken := identity[b.AddrPort()]; taken {
			v.refuse(at, "is %s again, as backends[%d]", b.AddrPort(), j)
			continue
		}
		identity[b.AddrPort()] = i
		// An agent tells backends of one endpoint apart by the outer destination alone.
		if j, taken := tunnel[b.TunnelAddress()]; taken {
			v.refuse(at+".tunnel", "%s is that of backends[%d] too: give each its own", b.TunnelAddress(), j)
			continue
		}
		tunnel[b.TunnelAddress()] = i
	}
}

func (b Backend) validate(v *validator, path string, vip netip.Addr, e Endpoint) {
	v.address(path+".address", b.Address)
	if b.Address.IsValid() && vip.IsValid() && b.Address.Is4() != vip.Is4() {
		v.refuse(path+".address", "must be of the VIP's family (%s), is %s", family(vip), b.Address)
	}
	if b.Address == vip && vip.IsValid() {
		v.refuse(path+".address", "must not be the VIP itself")
	}
	if b.Tunnel.IsValid() {
		v.address(path+".tunnel", b.Tunnel)
	}
	switch {
	case e.Port == AllPorts && b.Port != 0:
		v.refuse(path+".port", "must be left out for an endpoint of all ports, is %d", b.Port)
	case e.Port != AllPorts && b.Port == 0:
		v.refuse(path+".port", "must be 1 to 65535")
	}
	v.host(path+".host", b.Host)
	if b.FieldManager != "" {
		v.name(path+".fieldManager", b.FieldManager)
	}
	if b.Weight > MaxWeight {
		v.refuse(path+".weight", "must be at most %d, is %d", MaxWeight, b.Weight)
	}
}

// host holds that s is the name of a node or one of its addresses, as in Ananta's Figure 6.
func (v *validator) host(field, s string) {
	if _, err := netip.ParseAddr(s); err != nil {
		v.name(field, s)
	}
}

// Routable says what is wrong with an address that packets of VIPs, or checks, are to go to, or nothing: it must be
// unicast, and not of the host itself or of its link.
func Routable(a netip.Addr) (reason string) {
	var v validator
	v.address("", a)
	for _, first := range FieldErrors(v.errs.Err()) {
		return first.Reason
	}
	return ""
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}
