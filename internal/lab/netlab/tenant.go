package netlab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/weirlb/weir/internal/lab/overlay"
)

// clientHosts are how many hosts of clients a lab with virtual networks has.
const clientHosts = 2

// tenants are the workloads of virtual networks on a host of clients: acme1, bolt1 on the first, all with one address.
func (p Plan) tenants(host Node) (all []Node) {
	for _, n := range overlay.Networks(p.Networks) {
		w := overlay.WorkloadAt(host.Number)
		all = append(all, Node{
			Name: n.Workload(host.Number), Kind: Tenant, Number: n.Number, Host: host.Name, IPv4: w.IPv4, IPv6: w.IPv6,
		})
	}
	return all
}

// addTenants makes the networks' part of all hosts of clients.
func addTenants(l *network) error {
	hosts := l.Of(ClientHost)
	for _, host := range hosts {
		ns, err := l.NS(host.Name)
		if err != nil {
			return err
		}
		var others []netip.Addr
		for _, other := range hosts {
			if other.Name != host.Name {
				others = append(others, other.IPv4)
			}
		}
		for _, n := range overlay.Networks(l.Networks) {
			workload, err := l.create(n.Workload(host.Number))
			if err != nil {
				return err
			}
			if err := first(
				func() error { return n.Segment(ns, host.IPv4, others) },
				func() error { return n.Join(ns, n.Workload(host.Number), workload, overlay.WorkloadAt(host.Number)) },
			); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeNetworks writes networks.yaml in the lab's folder: the virtual networks, and VIPs that all of them have, with the
// first workload of each host.
func (l *Lab) writeNetworks() error {
	if l.Networks == 0 {
		return nil
	}
	var hosts []string
	for _, n := range l.Of(ClientHost) {
		hosts = append(hosts, n.Name)
	}
	var backends []overlay.Backend
	for _, h := range l.Of(Host) {
		w := l.workload(h.Number, 1)
		backends = append(backends, overlay.Backend{Host: h.Name, IPv4: w.IPv4, IPv6: w.IPv6, Port: EchoPort})
	}
	text := overlay.Manifest(overlay.Networks(l.Networks), hosts, backends)
	if err := os.WriteFile(filepath.Join(l.dir, "networks.yaml"), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the manifest of networks: %w", err)
	}
	return nil
}
