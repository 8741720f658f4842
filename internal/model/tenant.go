package model

import (
	"errors"
	"fmt"
	"net/netip"
)

// Tenant is who shares the installation with others.
type Tenant struct {
	Name   string
	Ranges []netip.Prefix // that its VIPs' addresses lie in; none: any address
	Limits Quotas
}

// Quotas are numbers of things that a tenant has, or may have at most; nil is no limit.
type Quotas struct {
	VIPs      *uint32
	Endpoints *uint32
	Backends  *uint32
	Ports     *uint32 // one for each endpoint, 65535 for one of all ports
	Prefixes  *uint32 // in all its prefix lists
}

// AllPortsCount is how many ports an endpoint of all ports takes of its tenant's quota.
const AllPortsCount = 65535

// Validate says what is wrong with the tenant, each reason with the path of its field.
func (t Tenant) Validate() error {
	var errs []error
	if !ValidName(t.Name) {
		errs = append(errs, &FieldError{Field: "name", Reason: fmt.Sprintf("must be a DNS label, is %.70q", t.Name)})
	}
	for i, r := range t.Ranges {
		switch {
		case !r.IsValid():
			errs = append(errs, &FieldError{Field: fmt.Sprintf("ranges[%d]", i), Reason: "must be a prefix such as 203.0.113.0/24"})
		case r != r.Masked():
			errs = append(errs, &FieldError{Field: fmt.Sprintf("ranges[%d]", i), Reason: fmt.Sprintf("has bits behind the prefix: did you mean %s?", r.Masked())})
		case r.Addr().Is4In6():
			errs = append(errs, &FieldError{Field: fmt.Sprintf("ranges[%d]", i), Reason: "must be written as IPv4"})
		}
	}
	return errors.Join(errs...)
}
