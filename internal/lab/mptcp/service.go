package mptcp

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// Port is that of a Service's VIPs.
const Port = 80

// Service is VIPs with one endpoint each, TCP port 80, on all workloads.
type Service struct {
	Name   string
	VIPs   []netip.Addr
	Weight map[string]int // by workload; 0: it drains; without one: 1
	// Removed are workloads that are no backends.
	Removed map[string]bool
	// Without Multipath TCP a subflow comes to any backend.
	Without bool
	// Switches serve the VIPs; none: muxes do.
	Switches []string
}

// Manifest is the service as weir apply takes it.
func (s *Service) Manifest(lab *netlab.Lab) string {
	multipath := "auto"
	if s.Without {
		multipath = "off"
	}
	var b strings.Builder
	for i, vip := range s.VIPs {
		hardware := ""
		if len(s.Switches) > 0 {
			hardware = fmt.Sprintf("  hardware: {placement: require, switches: [%s]}\n", strings.Join(s.Switches, ", "))
		}
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: '%s'\n%s  endpoints:\n"+
			"  - protocol: TCP\n    port: 80\n    multipath: %s\n    healthCheck: {tcp: {}, interval: 1s}\n    backends:\n", s.VIPName(i), vip, hardware, multipath)
		for _, n := range lab.Of(netlab.Workload) {
			if s.Removed[n.Name] {
				continue
			}
			address, weight := n.IPv4, 1
			if vip.Is6() {
				address = n.IPv6
			}
			if set, ok := s.Weight[n.Name]; ok {
				weight = set
			}
			fmt.Fprintf(&b, "    - {host: %s, address: '%s', port: %d, weight: %d}\n", n.Host, address, netlab.EchoPort, weight)
		}
	}
	return b.String()
}

// VIPName is the name of a VIP by its number.
func (s *Service) VIPName(i int) string { return fmt.Sprintf("%s-%d", s.Name, i+1) }

// Apply applies the service, and waits until so many muxes run it: as many as are there.
func (s *Service) Apply(ctx context.Context, lab *netlab.Lab, muxes int, bound time.Duration) error {
	file := filepath.Join(lab.Dir(), s.Name+".yaml")
	if err := os.WriteFile(file, []byte(s.Manifest(lab)), 0o600); err != nil {
		return err
	}
	if out, err := lab.Weir("apply", "-f", file); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return netlab.Poll(ctx, bound, func() error {
		status, err := lab.Status()
		if err != nil {
			return err
		}
		for _, vip := range status.VIPs {
			if vip.Status.MuxesProgrammed < muxes {
				return fmt.Errorf("%s: %d of %d muxes run it", vip.Metadata.Name, vip.Status.MuxesProgrammed, muxes)
			}
		}
		return nil
	})
}

// Serve applies the service, and waits until all muxes announce it and its backends are healthy.
func (s *Service) Serve(ctx context.Context, lab *netlab.Lab, bound time.Duration) error {
	muxes := len(lab.Of(netlab.Mux))
	if err := s.Apply(ctx, lab, muxes, bound); err != nil {
		return err
	}
	for _, vip := range s.VIPs {
		if err := lab.WaitRouted(ctx, bound, vip, muxes); err != nil {
			return err
		}
	}
	return lab.WaitHealthy(ctx, bound)
}
