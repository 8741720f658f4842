package manifest

import (
	"net/netip"
	"strings"

	"github.com/weirlb/weir/internal/model"
)

// poolSpelling turns a path of model.AddressPool into that of a document of kind AddressPool.
func poolSpelling(path string) string {
	if top, _, _ := strings.Cut(path, "."); top == "name" || top == "labels" {
		return "metadata." + path
	}
	return "spec." + path
}

// pool reads a document of kind AddressPool.
func (r *reader) pool(doc *object) model.AddressPool {
	doc.ignore("apiVersion", "kind", "status")
	metadata, spec := doc.get("metadata").required().object(), doc.get("spec").required().object()
	doc.end()

	var pool model.AddressPool
	if metadata.fields != nil {
		pool.Name = metadata.get("name").required().text("")
		pool.Labels = labels(metadata.get("labels").object())
		metadata.ignore("resourceVersion")
		metadata.end()
	}
	if spec.fields != nil {
		for _, v := range spec.get("prefixes").required().list() {
			pool.Prefixes = append(pool.Prefixes, v.prefix())
		}
		for _, v := range spec.get("exclusions").list() {
			pool.Exclusions = append(pool.Exclusions, v.prefix())
		}
		for _, v := range spec.get("tenants").list() {
			pool.Tenants = append(pool.Tenants, v.text(""))
		}
		for _, v := range spec.get("scrubbers").list() {
			pool.Scrubbers = append(pool.Scrubbers, scrubber(v.object()))
		}
		pool.Blackhole = blackhole(spec.get("blackhole").object())
		spec.end()
	}
	return pool
}

// prefix reads a prefix; an address is one of full length.
func (v value) prefix() netip.Prefix {
	s, ok := v.scalar("a prefix")
	if !ok {
		if v.node == nil {
			v.refuse("must be a prefix, is empty")
		}
		return netip.Prefix{}
	}
	if a, err := netip.ParseAddr(s); err == nil && !a.Is4In6() && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen())
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		v.refuse("must be a prefix such as 203.0.113.0/24, or an address, is %s", quote(s))
	}
	return p
}

// PoolDocument is an AddressPool in the shape of its manifest, to be encoded.
type PoolDocument struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   poolMetadata `json:"metadata"`
	Spec       poolSpec     `json:"spec"`
	// Status is what the manager says of the pool; Parse passes over it.
	Status any `json:"status,omitempty"`
}

type poolMetadata struct {
	Name            string            `json:"name"`
	Labels          map[string]string `json:"labels,omitempty"`
	ResourceVersion uint64            `json:"resourceVersion,omitempty"`
}

type poolSpec struct {
	Prefixes   []netip.Prefix `json:"prefixes"`
	Exclusions []netip.Prefix `json:"exclusions,omitempty"`
	Tenants    []string       `json:"tenants,omitempty"`

	Scrubbers []model.Scrubber `json:"scrubbers,omitempty"`
	Blackhole *model.Diversion `json:"blackhole,omitempty"`
}

// NewPoolDocument writes pool. version is that of the store, 0 for none.
func NewPoolDocument(pool model.AddressPool, version uint64, status any) PoolDocument {
	return PoolDocument{
		APIVersion: Version, Kind: KindPool, Status: status,
		Metadata: poolMetadata{Name: pool.Name, Labels: pool.Labels, ResourceVersion: version},
		Spec: poolSpec{
			Prefixes: pool.Prefixes, Exclusions: pool.Exclusions, Tenants: pool.Tenants, Scrubbers: pool.Scrubbers, Blackhole: pool.Blackhole,
		},
	}
}
