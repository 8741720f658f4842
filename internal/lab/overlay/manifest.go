package overlay

import (
	"fmt"
	"net/netip"
	"strings"
)

// Backend is one of the VIPs that all networks have.
type Backend struct {
	Host       string
	IPv4, IPv6 netip.Addr
	Port       int
}

// Own addresses of these VIPs.
var (
	Service4 = netip.MustParseAddr("203.0.113.90")
	Service6 = netip.MustParseAddr("2001:db8:113::90")
)

// Manifest is the networks with their tenants and their workloads on hosts of clients, and VIPs that all of them have.
func Manifest(networks []Network, hosts []string, backends []Backend) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: weir/v1\nkind: Overlay\nmetadata: {name: default}\nspec: {addresses: [%s]}\n", VXLAN)
	for _, n := range networks {
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: Tenant\nmetadata: {name: %s}\nspec: {backends: {hosts: [%s]}}\n", n.Name, strings.Join(hosts, ", "))
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VirtualNetwork\nmetadata: {name: %s-prod, tenant: %s}\n", n.Name, n.Name)
		fmt.Fprintf(&b, "spec:\n  vni: %d\n  prefixes: [%s, %q]\n  allowedTenants: [default]\n  workloads:\n", n.VNI(), Prefix4, Prefix6)
		for i, host := range hosts {
			w, name := WorkloadAt(i+1), n.Workload(i+1)
			fmt.Fprintf(&b, "    - {name: %s, addresses: [%s, %q], mac: %q, host: %s, interface: %s}\n", name, w.IPv4, w.IPv6, w.MAC, host, name)
		}
	}
	writeVIP(&b, "orders", Service4, VIP4, networks, backends)
	writeVIP(&b, "orders6", Service6, VIP6, networks, backends)
	return b.String()
}

func writeVIP(b *strings.Builder, name string, own, inside netip.Addr, networks []Network, backends []Backend) {
	fmt.Fprintf(b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: %q\n  attachments:\n", name, own)
	for _, n := range networks {
		fmt.Fprintf(b, "    - {network: %s-prod, address: %q}\n", n.Name, inside)
	}
	fmt.Fprintf(b, "  endpoints:\n")
	for _, protocol := range []string{"TCP", "UDP"} {
		fmt.Fprintf(b, "    - protocol: %s\n      port: 80\n      backends:\n", protocol)
		for _, k := range backends {
			address := k.IPv4
			if own.Is6() {
				address = k.IPv6
			}
			fmt.Fprintf(b, "        - {address: %q, port: %d, host: %s}\n", address, k.Port, k.Host)
		}
	}
}
