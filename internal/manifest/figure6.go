package manifest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlb/weir/api/v1"
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

// figure6Names are the fields of a document in the form of Figure 6.
func figure6Names(field protoreflect.FieldDescriptor) string {
	switch field.FullName() {
	case "weir.v1.VIP.address":
		return "VIP"
	case "weir.v1.VIP.endpoints":
		return "Endpoint"
	case "weir.v1.Endpoint.protocol", portField, "weir.v1.Backend.port":
		return field.JSONName()
	case "weir.v1.Endpoint.backends":
		return "DIP"
	case "weir.v1.Backend.address", "weir.v1.SNATWorkload.address":
		return "IP"
	case "weir.v1.Backend.host":
		return "Host"
	case "weir.v1.VIP.snat":
		return "SNAT"
	}
	return ""
}

// figure6 reads a document in the form of Figure 6. It has no names: the VIP is named after its
// address, and hosts are mostly known by one of theirs, which the manager resolves.
func (r *reader) figure6(doc *object) *weirv1.VIP {
	vip := &weirv1.VIP{Name: "vip"}
	snat := doc.get("SNAT")
	doc.order = slices.DeleteFunc(doc.order, func(name string) bool { return name == "SNAT" })
	r.fields(doc, vip.ProtoReflect(), figure6Names)
	if a, err := netip.ParseAddr(vip.GetAddress()); err == nil {
		vip.Name = "vip-" + label(a)
	}
	for _, s := range snat.list() {
		var workload weirv1.SNATWorkload
		r.message(s, workload.ProtoReflect(), figure6Names)
		if _, err := netip.ParseAddr(workload.GetAddress()); err != nil && !r.isReported(s.path) {
			s.object().get("IP").refuse("must be an IP address, is %s", quote(workload.GetAddress()))
		}
	}
	if snat.node != nil {
		snat.warn("has no effect: it names no host, write spec.snat of a document of kind VIP")
	}
	return vip
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
