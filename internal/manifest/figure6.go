package manifest

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirlb/weir/internal/model"
)

// isFigure6 says whether a document is in the JSON of Ananta's Figure 6.
func (o *object) isFigure6() bool {
	return o.has("VIP") && !o.has("apiVersion") && !o.has("kind")
}

// figure6Spelling turns a path of model.VIP into that of a document in the form of Figure 6.
func figure6Spelling(path string) string {
	if path == "name" || path == "address" {
		return "VIP"
	}
	if end, ok := strings.CutSuffix(path, ".address"); ok {
		path = end + ".IP"
	}
	if end, ok := strings.CutSuffix(path, ".host"); ok {
		path = end + ".Host"
	}
	return strings.NewReplacer("endpoints", "Endpoint", "backends", "DIP").Replace(path)
}

// figure6 reads a document in the form of Figure 6. It has no names: the VIP is named after its
// address, and hosts are mostly known by one of theirs, which the manager resolves.
func (r *reader) figure6(doc *object) model.VIP {
	vip := model.VIP{Tenant: model.DefaultTenant, Address: doc.get("VIP").required().address()}
	if vip.Address.IsValid() {
		vip.Name = "vip-" + label(vip.Address)
	}
	for _, e := range doc.get("Endpoint").required().list() {
		vip.Endpoints = append(vip.Endpoints, figure6Endpoint(e.object()))
	}
	snat := doc.get("SNAT")
	for _, s := range snat.list() {
		if addresses := s.object(); addresses.fields != nil {
			addresses.get("IP").required().address()
			addresses.end()
		}
	}
	if snat.node != nil {
		snat.warn("has no effect: it names no host, write spec.snat of a document of kind VIP")
	}
	doc.end()
	return vip
}

func figure6Endpoint(o *object) model.Endpoint {
	e := model.Endpoint{Protocol: protocol(o.get("protocol")), Port: o.get("port").required().port(1)}
	for _, dip := range o.get("DIP").list() {
		d := dip.object()
		e.Backends = append(e.Backends, model.Backend{
			Address: d.get("IP").required().address(),
			Port:    d.get("port").port(e.Port),
			Host:    d.get("Host").required().text(""),
			Weight:  1,
		})
		d.end()
	}
	o.end()
	return e
}

// label spells an address as the end of a DNS label: 1-2-3-4.
func label(a netip.Addr) string {
	if a.Is4() {
		return strings.ReplaceAll(a.String(), ".", "-")
	}
	b := a.As16()
	groups := make([]string, 0, 8)
	for i := 0; i < len(b); i += 2 {
		groups = append(groups, fmt.Sprintf("%x", uint16(b[i])<<8|uint16(b[i+1])))
	}
	return strings.Join(groups, "-")
}
