package manifest

import (
	"net/netip"
	"strings"

	"github.com/weirlb/weir/internal/model"
)

// spelling turns a path of model.VIP into that of a document of kind VIP.
func spelling(path string) string {
	top, _, _ := strings.Cut(path, ".")
	switch top {
	case "name", "tenant", "labels":
		return "metadata." + path
	}
	path = "spec." + path
	for check, kind := range map[string]string{".path": "http", ".host": "http", ".type": ""} {
		if parent, ok := strings.CutSuffix(path, ".healthCheck"+check); ok {
			path = strings.TrimSuffix(parent+".healthCheck."+kind, ".")
			if kind != "" {
				path += check
			}
			return path
		}
	}
	return path
}

// vip reads a document of kind VIP.
func (r *reader) vip(doc *object) model.VIP {
	doc.ignore("apiVersion", "kind", "status")
	metadata, spec := doc.get("metadata").required().object(), doc.get("spec").required().object()
	doc.end()

	vip := model.VIP{Tenant: model.DefaultTenant}
	if metadata.fields != nil {
		vip.Name = metadata.get("name").required().text("")
		vip.Tenant = metadata.get("tenant").text(model.DefaultTenant)
		vip.Labels = labels(metadata.get("labels").object())
		metadata.ignore("resourceVersion")
		metadata.end()
	}
	if spec.fields != nil {
		vip.Pool = spec.get("pool").text("")
		vip.Family = model.Family(spec.get("family").text(""))
		address := spec.get("address")
		if vip.Pool == "" {
			address = address.required()
		}
		vip.Address = address.address()
		vip.Consistency = model.Consistency(spec.get("consistency").text(""))
		vip.Ping = model.Ping(spec.get("ping").text(""))
		vip.FlowLimit = uint32(spec.get("flowLimit").number(1, model.MaxFlowLimit, 0))
		vip.Fastpath = fastpath(spec.get("fastpath").object())
		vip.Limits = limits(spec.get("limits").object())
		vip.Overload = overload(spec.get("overload").object())
		vip.SNAT = snat(spec.get("snat").object())
		endpoints := spec.get("endpoints")
		if vip.SNAT == nil {
			endpoints = endpoints.required()
		}
		for _, e := range endpoints.list() {
			vip.Endpoints = append(vip.Endpoints, endpoint(e.object()))
		}
		spec.end()
	}
	return vip
}

// limits reads what the VIP takes each second; nil: as much as comes.
func limits(o *object) *model.Limits {
	if o.fields == nil {
		return nil
	}
	number := func(field string) uint64 { return o.get(field).number(1, model.MaxLimit, 0) }
	l := &model.Limits{Packets: number("packets"), Bytes: number("bytes"), Connections: number("connections")}
	o.end()
	return l
}

// kindOf is the kind that the head of a document names, empty if it names none that can be read.
func kindOf(doc *object) string {
	version, kind := doc.get("apiVersion").required(), doc.get("kind").required()
	if s := version.text(Version); s != Version {
		version.refuse("must be %s, is %s", Version, quote(s))
	}
	s := kind.text(Kind)
	if s != Kind && s != KindPool && s != KindPrefixList && s != KindTenant {
		kind.refuse("must be %s, %s, %s or %s, is %s", Kind, KindPool, KindPrefixList, KindTenant, quote(s))
	}
	if len(doc.r.problems) > 0 {
		return ""
	}
	return s
}

func labels(o *object) map[string]string {
	if len(o.order) == 0 {
		return nil
	}
	all := make(map[string]string, len(o.order))
	for _, name := range o.order {
		all[name] = o.get(name).text("")
	}
	return all
}

func endpoint(o *object) model.Endpoint {
	e := model.Endpoint{Protocol: protocol(o.get("protocol"))}
	byDefault := uint16(model.AllPorts) // of the backends
	if port := o.get("port").required(); port.node == nil || port.node.Value != allPorts {
		// A wrong port of the endpoint is told once, not for each backend again.
		e.Port = port.port(1)
		byDefault = e.Port
	}
	for _, b := range o.get("backends").list() {
		e.Backends = append(e.Backends, backend(b.object(), byDefault))
	}
	e.Affinity = model.Affinity(o.get("affinity").text(""))
	e.IdleTimeout = o.get("idleTimeout").duration(0)
	e.HealthCheck = healthCheck(o.get("healthCheck").object())
	e.Allow, e.Deny = prefixes(o.get("allow")), prefixes(o.get("deny"))
	e.AllowLists, e.DenyLists = texts(o.get("allowLists")), texts(o.get("denyLists"))
	e.AllUnhealthy = model.AllUnhealthy(o.get("allUnhealthy").text(""))
	e.SYNCookies = model.SYNCookies(o.get("synCookies").text(""))
	o.end()
	return e
}

func prefixes(v value) (all []netip.Prefix) {
	for _, p := range v.list() {
		all = append(all, p.prefix())
	}
	return all
}

func texts(v value) (all []string) {
	for _, t := range v.list() {
		all = append(all, t.text(""))
	}
	return all
}

// allPorts is how the port of an endpoint of all ports is written.
const allPorts = "all"

func protocol(v value) model.Protocol {
	p, err := model.ParseProtocol(v.text(model.TCP.String()))
	if err != nil {
		v.refuse("%v", err)
	}
	return p
}

func backend(o *object, port uint16) model.Backend {
	b := model.Backend{
		Address: o.get("address").required().address(),
		Port:    o.get("port").port(port),
		Host:    o.get("host").required().text(""),
		Weight:  uint32(o.get("weight").number(0, model.MaxWeight, 1)),
		Tunnel:  o.get("tunnel").address(),
	}
	o.end()
	return b
}

func healthCheck(o *object) *model.HealthCheck {
	if o.fields == nil {
		return nil
	}
	c := &model.HealthCheck{
		Port:     o.get("port").port(0),
		Interval: o.get("interval").duration(model.DefaultCheckInterval),
		Rise:     uint32(o.get("rise").number(1, maxCount, model.DefaultCheckRise)),
		Fall:     uint32(o.get("fall").number(1, maxCount, model.DefaultCheckFall)),
	}
	c.Timeout = o.get("timeout").duration(min(model.DefaultCheckTimeout, c.Interval))
	tcp, http := o.get("tcp"), o.get("http")
	switch {
	case o.has("tcp") && o.has("http"):
		o.refuse("must be either tcp or http, is both")
	case o.has("tcp"):
		c.Type = model.CheckTCP
		tcp.object().end()
	case o.has("http"):
		c.Type = model.CheckHTTP
		fields := http.object()
		c.Path = fields.get("path").text("/")
		c.Host = fields.get("host").text("")
		fields.end()
	default:
		o.refuse("must say how: tcp or http")
	}
	o.end()
	return c
}

// maxCount bounds rise and fall.
const maxCount = 1000
