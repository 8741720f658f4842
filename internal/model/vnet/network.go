package vnet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/model"
)

// Network is a tenant's network in the overlay. Networks may have the same addresses.
type Network struct {
	Name     string // unique among networks; a DNS label
	Tenant   string // owner; a DNS label
	Labels   map[string]string
	VNI      uint32         // unique among networks; 1 to MaxVNI
	Prefixes []netip.Prefix // of the workloads; none overlaps another
	MTU      uint32         // of the workloads' interfaces
	// GatewayMAC is what VIPs on the workloads' subnet answer ARP and neighbor solicitations with.
	GatewayMAC     MAC
	Workloads      []Workload   // names, addresses and interfaces are unique
	AllowedTenants []string     // whose VIPs may be attached, beside those of Tenant
	WithoutAgent   []netip.Addr // VTEPs of hosts without an agent, in order; nodes have none of them
	Reply          Reply        // to clients on hosts without an agent, or whose agent is away
}

// Reply says how answers come to clients whose host has no agent.
type Reply string

// The ways of answers.
const (
	ReplyRelay  Reply = "relay"  // by the muxes, from where the client's packets went
	ReplyDirect Reply = "direct" // from the backend's host
)

// Workload is one of a network, that may be a client of its VIPs.
type Workload struct {
	Name      string       // unique in its network; a DNS label
	Addresses []netip.Addr // in the network's prefixes
	MAC       MAC          // of its interface
	Host      string       // name of the node that it lives on, or an address of that node
	Interface string       // the host's end of its interface
}

// Bounds and defaults of networks.
const (
	MaxVNI         = 1<<24 - 1
	SwitchVNI      = 0x574549 // of packets that switches bring to hosts; no network has it
	MinMTU         = 1280
	MaxMTU         = 9000
	DefaultMTU     = 1450
	MaxPrefixes    = 64    // of a network
	MaxWorkloads   = 16384 // of a network
	MaxAddresses   = 16    // of a workload
	MaxAllowed     = 1024  // tenants that a network allows
	MaxNetworks    = 4096  // of the cluster
	MaxWithout     = 256   // hosts of a network that have no agent
	maxInterface   = 15    // bytes of an interface's name: IFNAMSIZ
	exampleNetwork = "192.168.0.0/16"
)

// DefaultGatewayMAC is Network.GatewayMAC if it is left out.
var DefaultGatewayMAC = MAC{0x02, 0x57, 0x45, 0x49, 0x52, 0x01}

// Allows says whether VIPs of the tenant may be attached.
func (n Network) Allows(tenant string) bool {
	return tenant == n.Tenant || slices.Contains(n.AllowedTenants, tenant)
}

// Contains says whether the address is one of the network's subnet.
func (n Network) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(n.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// refusals collects all that is wrong, so that a user corrects a manifest in one go.
type refusals struct{ model.FieldErrorList }

func (r *refusals) refuse(field, format string, args ...any) { r.Refuse(field, format, args...) }

func (r *refusals) name(field, s string) {
	switch {
	case s == "":
		r.refuse(field, "is required")
	case !model.ValidName(s):
		r.refuse(field, "must be a DNS label (lower-case letters, digits and -, at most 63), is %.64q", s)
	}
}

func (r *refusals) most(field string, n, most int) bool {
	if n > most {
		r.refuse(field, "must be at most %d, are %d", most, n)
	}
	return n <= most
}

// Validate says everything that is wrong with the network taken alone, as joined FieldErrors.
func (n Network) Validate() error {
	var r refusals
	r.name("name", n.Name)
	r.name("tenant", n.Tenant)
	if n.VNI < 1 || n.VNI > MaxVNI {
		r.refuse("vni", "must be 1 to %d, is %d", MaxVNI, n.VNI)
	}
	if n.VNI == SwitchVNI {
		r.refuse("vni", "%d is of packets that switches bring to hosts: take another", SwitchVNI)
	}
	if n.MTU < MinMTU || n.MTU > MaxMTU {
		r.refuse("mtu", "must be %d to %d, is %d", MinMTU, MaxMTU, n.MTU)
	}
	r.mac("gateway.mac", n.GatewayMAC)
	n.validatePrefixes(&r)
	if r.most("workloads", len(n.Workloads), MaxWorkloads) {
		n.validateWorkloads(&r)
	}
	if r.most("allowedTenants", len(n.AllowedTenants), MaxAllowed) {
		for i, tenant := range n.AllowedTenants {
			field := fmt.Sprintf("allowedTenants[%d]", i)
			r.name(field, tenant)
			if j := slices.Index(n.AllowedTenants, tenant); j < i {
				r.refuse(field, "is %s again, as allowedTenants[%d]", tenant, j)
			}
		}
	}
	n.validateWithoutAgent(&r)
	return r.Err()
}

func (n Network) validateWithoutAgent(r *refusals) {
	if n.Reply != ReplyRelay && n.Reply != ReplyDirect {
		r.refuse("withoutAgent.reply", "must be %s or %s, is %.64q", ReplyRelay, ReplyDirect, string(n.Reply))
	}
	if !r.most("withoutAgent.vteps", len(n.WithoutAgent), MaxWithout) {
		return
	}
	for i, a := range n.WithoutAgent {
		field := fmt.Sprintf("withoutAgent.vteps[%d]", i)
		if reason := model.Routable(a); reason != "" {
			r.refuse(field, "%s", reason)
		}
		if j := slices.Index(n.WithoutAgent, a); j < i {
			r.refuse(field, "is %s again, as withoutAgent.vteps[%d]", a, j)
		}
	}
}

func (n Network) validatePrefixes(r *refusals) {
	if len(n.Prefixes) == 0 {
		r.refuse("prefixes", "must have at least one")
	}
	if !r.most("prefixes", len(n.Prefixes), MaxPrefixes) {
		return
	}
	for i, p := range n.Prefixes {
		field := fmt.Sprintf("prefixes[%d]", i)
		if reason := subnet(p); reason != "" {
			r.refuse(field, "%s", reason)
			continue
		}
		for j, other := range n.Prefixes[:i] {
			if p.Overlaps(other) {
				r.refuse(field, "overlaps prefixes[%d], %s", j, other)
			}
		}
	}
}

// subnet says what is wrong with a prefix of unicast addresses, or nothing.
func subnet(p netip.Prefix) (reason string) {
	switch {
	case !p.IsValid():
		return "must be a prefix such as " + exampleNetwork
	case p != p.Masked():
		return fmt.Sprintf("has bits behind the prefix: did you mean %s?", p.Masked())
	case p.Bits() == 0:
		return "must be longer than /0"
	}
	return model.Routable(p.Addr())
}

// port is an interface of a host.
type port struct{ host, name string }

func (n Network) validateWorkloads(r *refusals) {
	names, addresses, ports := map[string]int{}, map[netip.Addr]int{}, map[port]int{}
	for i, w := range n.Workloads {
		path := fmt.Sprintf("workloads[%d]", i)
		r.name(path+".name", w.Name)
		if j, taken := names[w.Name]; taken && w.Name != "" {
			r.refuse(path+".name", "is %s again, as workloads[%d]", w.Name, j)
		}
		names[w.Name] = i
		r.mac(path+".mac", w.MAC)
		if _, err := netip.ParseAddr(w.Host); err != nil {
			r.name(path+".host", w.Host)
		}
		if reason := InterfaceName(w.Interface); reason != "" {
			r.refuse(path+".interface", "%s", reason)
		}
		at := port{w.Host, w.Interface}
		if j, taken := ports[at]; taken && w.Interface != "" {
			r.refuse(path+".interface", "%s of %s is that of workloads[%d] too", w.Interface, w.Host, j)
		}
		ports[at] = i
		if len(w.Addresses) == 0 {
			r.refuse(path+".addresses", "must have at least one")
		}
		if !r.most(path+".addresses", len(w.Addresses), MaxAddresses) {
			continue
		}
		for k, a := range w.Addresses {
			field := fmt.Sprintf("%s.addresses[%d]", path, k)
			j, taken := addresses[a]
			switch reason := model.Routable(a); {
			case reason != "":
				r.refuse(field, "%s", reason)
			case !n.Contains(a):
				r.refuse(field, "%s is in none of the prefixes", a)
			case taken:
				r.refuse(field, "%s is an address of workloads[%d] already", a, j)
			}
			addresses[a] = i
		}
	}
}

// InterfaceName says what is wrong with the name of an interface of Linux, or nothing.
func InterfaceName(s string) (reason string) {
	switch {
	case s == "":
		return "is required"
	case len(s) > maxInterface:
		return fmt.Sprintf("must be at most %d bytes, is %.64q", maxInterface, s)
	case s == "." || s == ".." || strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' || c == '/' || c == ':' || c == '%' }):
		return fmt.Sprintf("must be the name of an interface, is %.64q", s)
	}
	return ""
}
