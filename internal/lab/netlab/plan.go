package netlab

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"github.com/weirlb/weir/internal/lab/clos"
	"github.com/weirlb/weir/internal/lab/overlay"
)

// Plan says what a lab consists of.
type Plan struct {
	Name      string `json:"name"` // letters and digits
	Clients   int    `json:"clients"`
	Muxes     int    `json:"muxes"`
	Hosts     int    `json:"hosts"`
	Workloads int    `json:"workloads"` // per host
	// Managers are replicas, each a machine of its own; 0 is one. One alone is called manager, several are
	// manager1, manager2, ...
	Managers int `json:"managers,omitempty"`
	// Outside are servers of other networks behind the router, with addresses that no datacenter has.
	Outside int `json:"outside,omitempty"`
	// Networks are virtual networks of tenants, with workloads on two more hosts, chost1 and chost2.
	Networks int `json:"networks,omitempty"`
	// Switches are routers below the lab's that serve VIPs in hardware. The muxes then announce aggregates.
	Switches int `json:"switches,omitempty"`
	// Fabric is a Clos network of switches between the router and the muxes and hosts, as 2x2x2x2 (package clos). There are no
	// Switches then.
	Fabric string `json:"fabric,omitempty"`
	// SwitchDriver is that of the fabric's switches, xdp or linux; empty: xdp. One beside the router has linux.
	SwitchDriver string `json:"switchDriver,omitempty"`
	// Segment has the muxes and the router on one Ethernet segment, on which VIPs are found by ARP and NDP: there is no BGP.
	Segment bool `json:"segment,omitempty"`
}

// Kind is what a node is.
type Kind string

// Kinds of nodes.
const (
	Client   Kind = "client"
	Manager  Kind = "manager"
	Mux      Kind = "mux"
	Host     Kind = "host"
	Workload Kind = "workload"
	Router   Kind = "router"
	Outside  Kind = "outside"
	Switch   Kind = "sw"
	// ClientHost is a host of virtual networks' workloads, Tenant such a workload.
	ClientHost Kind = "chost"
	Tenant     Kind = "tenant"
)

// nets are the second octet, or the second group, of the addresses of each kind.
var nets = map[Kind]int{Client: 0, Mux: 1, Host: 2, Workload: 3, Manager: 4, path: 5, ClientHost: 6, Switch: 7}

// Node is a machine of the lab, or a workload.
type Node struct {
	Name   string
	Kind   Kind
	Number int // from 1, within its kind; of a workload within its host

	// Of a workload only.
	Host   string // of a tenant, too
	Native bool   // lives on the host itself

	IPv4, IPv6 netip.Addr
}

var (
	// VIPs4 and VIPs6 are what a lab's VIPs are taken from.
	VIPs4 = netip.MustParsePrefix("203.0.113.0/24")
	VIPs6 = netip.MustParsePrefix("2001:db8:113::/48")

	// Outside4 and Outside6 are where the servers outside live: the third octet, and group, are their numbers.
	Outside4 = netip.MustParsePrefix("198.18.0.0/16")
	Outside6 = netip.MustParsePrefix("2001:db8:198::/48")

	labName = regexp.MustCompile(`^[a-z0-9]{1,12}$`)
)

// NATPrefixes are those of a mux, by which backends know clients of networks with full NAT in it.
func NATPrefixes(mux int) (v4, v6 netip.Prefix) {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 66, byte(mux), 0}), 24), netip.MustParsePrefix(fmt.Sprintf("fd00:66:%d::/112", mux))
}

const linuxDriver = "linux"

// Bounds of a plan. The addresses have room for as many.
const (
	maxNodes     = 99
	maxWorkloads = 89
	maxManagers  = 5
)

// Validate says what is wrong with the plan.
func (p Plan) Validate() error {
	if !labName.MatchString(p.Name) {
		return fmt.Errorf("name must be 1 to 12 small letters and digits, is %q", p.Name)
	}
	for _, bound := range []struct {
		what     string
		is, most int
	}{
		{"clients", p.Clients, maxNodes},
		{"muxes", p.Muxes, maxNodes},
		{"hosts", p.Hosts, maxNodes},
		{"workloads", p.Workloads, maxWorkloads},
	} {
		if bound.is < 1 || bound.is > bound.most {
			return fmt.Errorf("%s must be 1 to %d, is %d", bound.what, bound.most, bound.is)
		}
	}
	if p.Outside < 0 || p.Outside > maxNodes {
		return fmt.Errorf("outside must be 0 to %d, is %d", maxNodes, p.Outside)
	}
	if p.Switches < 0 || p.Switches > maxNodes {
		return fmt.Errorf("switches must be 0 to %d, is %d", maxNodes, p.Switches)
	}
	if !slices.Contains([]string{"", "xdp", linuxDriver}, p.SwitchDriver) {
		return fmt.Errorf("switch driver must be xdp or linux, is %q", p.SwitchDriver)
	}
	if p.Fabric != "" {
		if _, err := clos.Parse(p.Fabric, string(Router)); err != nil {
			return err
		}
		if p.Switches > 0 {
			return fmt.Errorf("switches and fabric exclude each other: leave one away")
		}
	}
	if p.Segment && (p.Fabric != "" || p.Switches > 0) {
		return fmt.Errorf("segment and switches exclude each other: leave one away")
	}
	if p.Networks < 0 || p.Networks > overlay.Most {
		return fmt.Errorf("networks must be 0 to %d, is %d", overlay.Most, p.Networks)
	}
	if p.Managers < 0 || p.Managers > maxManagers {
		return fmt.Errorf("managers must be 1 to %d, is %d", maxManagers, p.Managers)
	}
	return nil
}

// Nodes lists all nodes but the router: clients, managers, muxes, and each host before its workloads.
func (p Plan) Nodes() []Node {
	var nodes []Node
	add := func(kind Kind, count int) {
		for i := 1; i <= count; i++ {
			nodes = append(nodes, p.machine(kind, i))
		}
	}
	add(Client, p.Clients)
	add(Outside, p.Outside)
	add(Manager, max(1, p.Managers))
	add(Mux, p.Muxes)
	add(Switch, p.Switches+len(p.fabric().Switches))
	for h := 1; h <= p.Hosts; h++ {
		nodes = append(nodes, p.machine(Host, h))
		for n := 1; n <= p.Workloads; n++ {
			nodes = append(nodes, p.workload(h, n))
		}
	}
	for h := 1; h <= clientHosts && p.Networks > 0; h++ {
		host := p.machine(ClientHost, h)
		nodes = append(append(nodes, host), p.tenants(host)...)
	}
	return nodes
}

// nodesWithPrograms are the muxes, the switches, and the hosts of both kinds.
func (p Plan) nodesWithPrograms() []Node {
	return slices.Concat(p.Of(Mux), p.Of(Switch), p.Of(Host), p.Of(ClientHost))
}

// Of lists the nodes of one kind.
func (p Plan) Of(kind Kind) []Node {
	var of []Node
	for _, n := range p.Nodes() {
		if n.Kind == kind {
			of = append(of, n)
		}
	}
	return of
}

// Node finds a node by its name; the router is one too.
func (p Plan) Node(name string) (Node, error) {
	if name == string(Router) {
		return Node{Name: name, Kind: Router}, nil
	}
	for _, n := range p.Nodes() {
		if n.Name == name {
			return n, nil
		}
	}
	return Node{}, fmt.Errorf("lab %s has no node %q: "+
		"nodes are called like client1, mux1, host1, host1-w1, manager and router", p.Name, name)
}

func (p Plan) machine(kind Kind, number int) Node {
	name := fmt.Sprintf("%s%d", kind, number)
	switch {
	case kind == Manager && p.Managers <= 1:
		name = string(kind)
	case kind == Switch && p.Fabric != "":
		name = p.fabric().Switches[number-1]
	}
	if kind == Outside {
		return Node{
			Name: name, Kind: kind, Number: number,
			IPv4: netip.MustParseAddr(fmt.Sprintf("198.18.%d.2", number)), IPv6: netip.MustParseAddr(fmt.Sprintf("2001:db8:198:%d::2", number)),
		}
	}
	return Node{Name: name, Kind: kind, Number: number, IPv4: address4(kind, number, 2), IPv6: address6(kind, number, 2)}
}

func (p Plan) workload(host, number int) Node {
	owner := p.machine(Host, host)
	return Node{
		Name: fmt.Sprintf("%s-w%d", owner.Name, number), Kind: Workload, Number: number,
		Host: owner.Name, Native: number%2 == 0,
		IPv4: address4(Workload, host, 10+number), IPv6: address6(Workload, host, 10+number),
	}
}

// nativePrefixes are those of all workloads: a host has the addresses of its native ones on lo.
func nativePrefixes() string {
	v4, v6 := netip.PrefixFrom(address4(Workload, 0, 0), 16), netip.PrefixFrom(address6(Workload, 0, 0), 32)
	return v4.String() + "," + v6.String()
}

// gateway is the router's address on the node's link, and a host's on its workload's.
func (n Node) gateway() (v4, v6 netip.Addr) {
	b4, b6 := n.IPv4.As4(), n.IPv6.As16()
	b4[3] = 1
	b6[14], b6[15] = 0, 1
	return netip.AddrFrom4(b4), netip.AddrFrom16(b6)
}

func address4(kind Kind, link, number int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("10.%d.%d.%d", nets[kind], link, number))
}

// The groups of an IPv6 address are written with the digits of the IPv4 octets: 10.3.1.11 goes with
// fd00:3:1::11.
func address6(kind Kind, link, number int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("fd00:%d:%d::%d", nets[kind], link, number))
}
