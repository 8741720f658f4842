package rpc

import (
	"errors"
	"fmt"
	"net/netip"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// TenantToProto writes t without what it uses.
func TenantToProto(t model.Tenant) *weirv1.Tenant {
	p := &weirv1.Tenant{
		Name:   t.Name,
		Quotas: &weirv1.Quotas{Vips: t.Limits.VIPs, Endpoints: t.Limits.Endpoints, Backends: t.Limits.Backends, Ports: t.Limits.Ports, Prefixes: t.Limits.Prefixes},
	}
	for _, r := range t.Ranges {
		p.Ranges = append(p.Ranges, r.String())
	}
	return p
}

// TenantFromProto reads a tenant; its errors name fields below path.
func TenantFromProto(path string, p *weirv1.Tenant) (model.Tenant, error) {
	t := model.Tenant{Name: p.GetName()}
	if q := p.GetQuotas(); q != nil {
		t.Limits = model.Quotas{VIPs: q.Vips, Endpoints: q.Endpoints, Backends: q.Backends, Ports: q.Ports, Prefixes: q.Prefixes}
	}
	var errs []error
	for i, text := range p.GetRanges() {
		r, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, &model.FieldError{
				Field:  fmt.Sprintf("%s.ranges[%d]", path, i),
				Reason: fmt.Sprintf("must be a prefix such as 203.0.113.0/24, is %.60q", text),
			})
			continue
		}
		t.Ranges = append(t.Ranges, r)
	}
	if len(errs) == 0 {
		for _, err := range model.FieldErrors(t.Validate()) {
			errs = append(errs, &model.FieldError{Field: path + "." + err.Field, Reason: err.Reason})
		}
	}
	return t, errors.Join(errs...)
}
