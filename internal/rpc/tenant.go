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
	if !t.Backends.IsZero() {
		p.Backends = &weirv1.TenantBackends{Hosts: t.Backends.Hosts}
		for _, prefix := range t.Backends.Prefixes {
			p.Backends.Prefixes = append(p.Backends.Prefixes, prefix.String())
		}
	}
	return p
}

// TenantFromProto reads a tenant; its errors name fields below path, which may be empty.
func TenantFromProto(path string, p *weirv1.Tenant) (model.Tenant, error) {
	if path != "" {
		path += "."
	}
	t := model.Tenant{Name: p.GetName()}
	if q := p.GetQuotas(); q != nil {
		t.Limits = model.Quotas{VIPs: q.Vips, Endpoints: q.Endpoints, Backends: q.Backends, Ports: q.Ports, Prefixes: q.Prefixes}
	}
	ranges, wrongRanges := ParsePrefixes(path+"ranges", p.GetRanges())
	prefixes, wrongBackends := ParsePrefixes(path+"backends.prefixes", p.GetBackends().GetPrefixes())
	t.Ranges, t.Backends = ranges, model.TenantBackends{Prefixes: prefixes, Hosts: p.GetBackends().GetHosts()}
	if err := errors.Join(wrongRanges, wrongBackends); err != nil {
		return t, err
	}
	var errs []error
	for _, err := range model.FieldErrors(t.Validate()) {
		errs = append(errs, &model.FieldError{Field: path + err.Field, Reason: err.Reason})
	}
	return t, errors.Join(errs...)
}

// ParsePrefixes reads prefixes; its errors name field[i].
func ParsePrefixes(field string, texts []string) (prefixes []netip.Prefix, err error) {
	var errs []error
	for i, text := range texts {
		p, err := netip.ParsePrefix(text)
		if a, wrong := netip.ParseAddr(text); wrong == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			errs = append(errs, &model.FieldError{
				Field:  fmt.Sprintf("%s[%d]", field, i),
				Reason: fmt.Sprintf("must be a prefix such as 203.0.113.0/24, or an address, is %.60q", text),
			})
			continue
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, errors.Join(errs...)
}

// PrefixTexts writes prefixes.
func PrefixTexts(prefixes []netip.Prefix) []string {
	var texts []string
	for _, p := range prefixes {
		texts = append(texts, p.String())
	}
	return texts
}
