package model

import (
	"fmt"
	"net/netip"
)

// Tenant is who shares the installation with others.
type Tenant struct {
	Name   string
	Ranges []netip.Prefix // that its VIPs' addresses lie in; none: any address
	Limits Quotas
	// Backends are what its VIPs may lead to and leave from.
	Backends TenantBackends
}

// TenantBackends are addresses that a tenant's workloads may have. The zero value is any address that is no node's own
// and is of no other tenant, neither by its VIPs nor by its TenantBackends.
type TenantBackends struct {
	Prefixes []netip.Prefix // of workloads and tunnels; they do not open addresses of nodes
	Hosts    []string       // whose own addresses workloads may have
}

// IsZero says whether nothing is named.
func (b TenantBackends) IsZero() bool { return len(b.Prefixes)+len(b.Hosts) == 0 }

// MaxTenantBackends bounds the prefixes and the hosts of TenantBackends, each.
const MaxTenantBackends = 1024

// Quotas are numbers of things that a tenant has, or may have at most; nil is no limit.
type Quotas struct {
	VIPs      *uint32
	Endpoints *uint32
	Backends  *uint32
	Ports     *uint32 // one for each endpoint, 65535 for one of all ports
	Prefixes  *uint32 // in all its prefix lists
	// Networks are virtual ones, Workloads those of all of them; Attachments are those of its VIPs, whosever the network is.
	Networks, Workloads, Attachments *uint32
	SwitchHosts, SwitchTunnels       *uint32 // places of its VIPs in switches that these name, and the tunnels of them
}

// AllPortsCount is how many ports an endpoint of all ports takes of its tenant's quota.
const AllPortsCount = 65535

// Validate says what is wrong with the tenant, each reason with the path of its field.
func (t Tenant) Validate() error {
	var v validator
	v.name("name", t.Name)
	prefixes := func(field string, all []netip.Prefix) {
		for i, p := range all {
			if reason := OwnedPrefix(p); reason != "" {
				v.refuse(fmt.Sprintf("%s[%d]", field, i), "%s", reason)
			}
		}
	}
	prefixes("ranges", t.Ranges)
	prefixes("backends.prefixes", t.Backends.Prefixes)
	for i, host := range t.Backends.Hosts {
		if !ValidName(host) {
			v.refuse(fmt.Sprintf("backends.hosts[%d]", i), "must be the name of a host, is %.70q", host)
		}
	}
	for field, n := range map[string]int{"backends.prefixes": len(t.Backends.Prefixes), "backends.hosts": len(t.Backends.Hosts)} {
		if n > MaxTenantBackends {
			v.refuse(field, "must be at most %d, are %d", MaxTenantBackends, n)
		}
	}
	return v.errs.Err()
}

// OwnedPrefix says what is wrong with a prefix that belongs to a tenant or a node, or nothing.
func OwnedPrefix(p netip.Prefix) (reason string) {
	switch {
	case !p.IsValid():
		return "must be a prefix such as 203.0.113.0/24"
	case p != p.Masked():
		return fmt.Sprintf("has bits behind the prefix: did you mean %s?", p.Masked())
	case p.Addr().Is4In6():
		return "must be written as IPv4"
	}
	return ""
}
