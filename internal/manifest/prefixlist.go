package manifest

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/model"
)

// prefixListSpelling turns a path of model.PrefixList into that of a document of kind PrefixList.
func prefixListSpelling(path string) string {
	if top, _, _ := strings.Cut(path, "."); top == "prefixes" || strings.HasPrefix(top, "prefixes[") {
		return "spec." + path
	}
	return "metadata." + path
}

// prefixList reads a document of kind PrefixList.
func (r *reader) prefixList(doc *object) model.PrefixList {
	doc.ignore("apiVersion", "kind", "status")
	metadata, spec := doc.get("metadata").required().object(), doc.get("spec").required().object()
	doc.end()

	var list model.PrefixList
	if metadata.fields != nil {
		list.Name = metadata.get("name").required().text("")
		list.Tenant = metadata.get("tenant").text("")
		list.Labels = labels(metadata.get("labels").object())
		metadata.ignore("resourceVersion")
		metadata.end()
	}
	if spec.fields != nil {
		var prefixes []netip.Prefix
		for _, v := range spec.get("prefixes").list() {
			if p := v.prefix(); p.IsValid() {
				if reason := model.ListedPrefix(p); reason != "" {
					v.refuse("%s", reason)
					continue
				}
				prefixes = append(prefixes, p)
			}
		}
		list.Prefixes = model.NewPrefixSet(prefixes)
		spec.end()
	}
	return list
}

// PrefixListDocument is a PrefixList in the shape of its manifest, to be encoded.
type PrefixListDocument struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   metadata       `json:"metadata"`
	Spec       prefixListSpec `json:"spec"`
	// Status is what the manager says of the list; Parse passes over it.
	Status any `json:"status,omitempty"`
}

type prefixListSpec struct {
	Prefixes []netip.Prefix `json:"prefixes"`
}

// NewPrefixListDocument writes list. version is that of the store, 0 for none.
func NewPrefixListDocument(list model.PrefixList, version uint64, status any) PrefixListDocument {
	return PrefixListDocument{
		APIVersion: Version, Kind: KindPrefixList, Status: status,
		Metadata: metadata{Name: list.Name, Tenant: list.Tenant, Labels: list.Labels, ResourceVersion: version},
		Spec:     prefixListSpec{slices.Collect(list.Prefixes.All())},
	}
}
