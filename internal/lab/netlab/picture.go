package netlab

import (
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/lab/picture"
	"github.com/weirlb/weir/internal/lab/switches"
)

// Picture draws the lab as text: on the left who sends, on the right who serves.
func (p Plan) Picture() string {
	if p.Fabric != "" {
		return p.fabricPicture()
	}
	var left, right []string
	senders, width := slices.Concat(p.Of(Client), p.Of(Outside), p.Of(Manager)), 9
	for _, n := range senders {
		width = max(width, len(n.IPv4.String()))
	}
	for _, n := range senders {
		left = append(left, fmt.Sprintf("%-8s %-*s ───", n.Name, width, n.IPv4))
	}
	for _, n := range p.Of(Mux) {
		says := fmt.Sprintf("BGP of AS %d", muxAS)
		if p.Segment {
			says = "ARP and NDP on one segment"
		}
		right = append(right, fmt.Sprintf("─── %-8s %-10s XDP, %s", n.Name, n.IPv4, says))
	}
	for _, n := range p.Of(Switch) {
		right = append(right, fmt.Sprintf("─── %-8s %-10s switch, FRR of AS %d", n.Name, n.IPv4, switches.AS(n.Number)))
	}
	for _, h := range p.Of(Host) {
		right = append(right, fmt.Sprintf("─── %-8s %-10s agent", h.Name, h.IPv4))
		workloads := p.workloadsOf(h)
		for i, w := range workloads {
			branch, home := "├", "in its own namespace"
			if i == len(workloads)-1 {
				branch = "└"
			}
			if w.Native {
				home = "native on the host"
			}
			right = append(right, fmt.Sprintf("     %s── %-8s %-10s %s", branch, w.Name, w.IPv4, home))
		}
	}
	for _, h := range p.Of(ClientHost) {
		right = append(right, fmt.Sprintf("─── %-8s %-10s agent", h.Name, h.IPv4))
		tenants := p.tenants(h)
		for i, w := range tenants {
			branch := "├"
			if i == len(tenants)-1 {
				branch = "└"
			}
			right = append(right, fmt.Sprintf("     %s── %-8s %-10s in its tenant's virtual network", branch, w.Name, w.IPv4))
		}
	}
	return picture.Join(left, right, "───── router ────", fmt.Sprintf("  FRR, AS %d  ", routerAS))
}

func (p Plan) workloadsOf(host Node) []Node {
	var of []Node
	for _, w := range p.Of(Workload) {
		if w.Host == host.Name {
			of = append(of, w)
		}
	}
	return of
}
