package manifest

import (
	"math"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// tenantSpelling turns a path of model.Tenant into that of a document of kind Tenant.
func tenantSpelling(path string) string {
	if path == "name" {
		return "metadata.name"
	}
	return "spec." + path
}

// tenant reads a document of kind Tenant.
func (r *reader) tenant(doc *object) model.Tenant {
	doc.ignore("apiVersion", "kind", "status")
	metadata, spec := doc.get("metadata").required().object(), doc.get("spec").object()
	doc.end()

	var tenant model.Tenant
	if metadata.fields != nil {
		tenant.Name = metadata.get("name").required().text("")
		metadata.end()
	}
	if spec.fields != nil {
		for _, v := range spec.get("ranges").list() {
			tenant.Ranges = append(tenant.Ranges, v.prefix())
		}
		if backends := spec.get("backends").object(); backends.fields != nil {
			for _, v := range backends.get("prefixes").list() {
				tenant.Backends.Prefixes = append(tenant.Backends.Prefixes, v.prefix())
			}
			for _, v := range backends.get("hosts").list() {
				tenant.Backends.Hosts = append(tenant.Backends.Hosts, v.text(""))
			}
			backends.end()
		}
		if quotas := spec.get("quotas").object(); quotas.fields != nil {
			tenant.Limits = model.Quotas{
				VIPs: quotas.get("vips").limit(), Endpoints: quotas.get("endpoints").limit(),
				Backends: quotas.get("backends").limit(), Ports: quotas.get("ports").limit(),
				Prefixes: quotas.get("prefixes").limit(),
			}
			quotas.end()
		}
		spec.end()
	}
	return tenant
}

// limit reads a number that may be left out, which is no limit.
func (v value) limit() *uint32 {
	if v.node == nil {
		return nil
	}
	n := uint32(v.number(0, math.MaxUint32, 0))
	return &n
}

// TenantDocument is a Tenant in the shape of its manifest, to be encoded.
type TenantDocument struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   tenantMetadata `json:"metadata"`
	Spec       tenantSpec     `json:"spec"`
	// Status is what the manager says that the tenant uses; Parse passes over it.
	Status any `json:"status,omitempty"`
}

type tenantMetadata struct {
	Name string `json:"name"`
}

type tenantSpec struct {
	Ranges []netip.Prefix `json:"ranges,omitempty"`
	Quotas *tenantQuotas  `json:"quotas,omitempty"`

	Backends *model.TenantBackends `json:"backends,omitempty"`
}

type tenantQuotas struct {
	VIPs      *uint32 `json:"vips,omitempty"`
	Endpoints *uint32 `json:"endpoints,omitempty"`
	Backends  *uint32 `json:"backends,omitempty"`
	Ports     *uint32 `json:"ports,omitempty"`
	Prefixes  *uint32 `json:"prefixes,omitempty"`
}

// NewTenantDocument writes tenant.
func NewTenantDocument(tenant model.Tenant, status any) TenantDocument {
	d := TenantDocument{
		APIVersion: Version, Kind: KindTenant, Status: status,
		Metadata: tenantMetadata{tenant.Name}, Spec: tenantSpec{Ranges: tenant.Ranges},
	}
	if tenant.Limits != (model.Quotas{}) {
		quotas := tenantQuotas(tenant.Limits)
		d.Spec.Quotas = &quotas
	}
	if !tenant.Backends.IsZero() {
		d.Spec.Backends = &tenant.Backends
	}
	return d
}
