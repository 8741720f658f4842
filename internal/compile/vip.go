package compile

import (
	"cmp"
	"fmt"
	"unique"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
)

// VIPMessage writes vip without the fields that are output only.
func VIPMessage(vip model.VIP) *weirv1.VIP {
	p := &weirv1.VIP{
		Name: vip.Name, Tenant: vip.Tenant, Labels: vip.Labels, Address: OptionalAddress(vip.Address),
		Pool: vip.Pool, Family: string(vip.Family),
		Endpoints:   make([]*weirv1.Endpoint, 0, len(vip.Endpoints)),
		Consistency: string(vip.Consistency), Ping: string(vip.Ping), FlowLimit: vip.FlowLimit,
		Fastpath: FastpathMessage(vip.Fastpath), Limits: LimitsMessage(vip.Limits), Overload: overloadMessage(vip.Overload),
		Hardware: HardwareMessage(vip.Hardware),
	}
	for _, e := range vip.Endpoints {
		endpoint := &weirv1.Endpoint{
			Protocol: e.Protocol.String(), Port: uint32(e.Port), AllUnhealthy: string(e.AllUnhealthy),
			HealthCheck: HealthCheckMessage(e.HealthCheck),
			Backends:    make([]*weirv1.Backend, 0, len(e.Backends)),
			Affinity:    string(e.Affinity), IdleTimeout: OptionalDuration(e.IdleTimeout),
			SynCookies: string(e.SYNCookies), Multipath: multipathText(e.Multipath),
			Allow: SourceTexts(e.Allow), Deny: SourceTexts(e.Deny),
			AllowLists: e.AllowLists, DenyLists: e.DenyLists,
		}
		for _, b := range e.Backends {
			endpoint.Backends = append(endpoint.Backends, BackendMessage(b))
		}
		p.Endpoints = append(p.Endpoints, endpoint)
	}
	p.Snat = snatMessage(vip.SNAT)
	p.Attachments = attachmentMessages(vip.Attachments)
	return p
}

// BackendMessage writes b without the fields that are output only.
func BackendMessage(b model.Backend) *weirv1.Backend {
	weight := b.Weight
	return &weirv1.Backend{
		Address: OptionalAddress(b.Address), Port: uint32(b.Port), Host: b.Host, Weight: &weight, Tunnel: OptionalAddress(b.Tunnel),
		FieldManager: b.FieldManager,
	}
}

// HealthCheckMessage writes c; nil stays nil.
func HealthCheckMessage(c *model.HealthCheck) *weirv1.HealthCheck {
	if c == nil {
		return nil
	}
	p := &weirv1.HealthCheck{
		Port: uint32(c.Port), Interval: durationpb.New(c.Interval), Timeout: durationpb.New(c.Timeout), Rise: c.Rise, Fall: c.Fall,
	}
	switch c.Type {
	case model.CheckTCP:
		p.Check = &weirv1.HealthCheck_Tcp{Tcp: &weirv1.TCPCheck{}}
	case model.CheckHTTP:
		p.Check = &weirv1.HealthCheck_Http{Http: &weirv1.HTTPCheck{Path: c.Path, Host: c.Host}}
	case model.CheckHTTPS:
		p.Check = &weirv1.HealthCheck_Https{Https: &weirv1.HTTPSCheck{Path: c.Path, Host: c.Host, Tls: tlsMessage(c.TLS)}}
	case model.CheckGRPC:
		p.Check = &weirv1.HealthCheck_Grpc{Grpc: &weirv1.GRPCCheck{Service: c.Service, Host: c.Host, Tls: tlsMessage(c.TLS)}}
	case model.CheckUDP:
		p.Check = &weirv1.HealthCheck_Udp{Udp: udpMessage(c)}
	}
	return p
}

// VIP reads, completes with defaults and validates what a user wrote. Fields that are
// output only are left aside, so that what was read from a manager can be applied again.
func VIP(p *weirv1.VIP) (model.VIP, error) {
	vip, f := vip(p)
	f.Add(hardware.Validate(vip))
	return validated(vip, f)
}

// StoredVIP is VIP of what was validated before it was stored: a rule that is newer does not make a store unreadable.
func StoredVIP(p *weirv1.VIP) (model.VIP, error) {
	return read(vip(p))
}

func vip(p *weirv1.VIP) (model.VIP, *Fields) {
	var f Fields
	vip := model.VIP{
		Name: p.GetName(), Tenant: p.GetTenant(), Labels: p.GetLabels(),
		Pool: p.GetPool(), Family: model.Family(p.GetFamily()),
		Consistency: model.Consistency(p.GetConsistency()), Ping: model.Ping(p.GetPing()), FlowLimit: p.GetFlowLimit(),
	}
	vip.Fastpath = f.Fastpath("fastpath", p.GetFastpath())
	vip.Limits = Limits(p.GetLimits())
	vip.Hardware = Hardware(p.GetHardware())
	vip.Overload = f.overload("overload", p.GetOverload())
	if vip.Tenant == "" {
		vip.Tenant = model.DefaultTenant
	}
	if p.GetAddress() != "" || p.GetPool() == "" {
		vip.Address = f.Address("address", p.GetAddress())
	}
	if n := len(p.GetEndpoints()); n > 0 {
		vip.Endpoints = make([]model.Endpoint, 0, n)
	}
	for i, e := range p.GetEndpoints() {
		vip.Endpoints = append(vip.Endpoints, f.endpoint(i, e))
	}
	vip.SNAT = f.snat("snat", p.GetSnat())
	vip.Attachments = f.attachments("attachments", p.GetAttachments())
	return vip, &f
}

func (f *Fields) endpoint(i int, p *weirv1.Endpoint) model.Endpoint {
	f.enter("endpoints", i)
	defer f.leave()
	e := model.Endpoint{
		Protocol:     model.TCP,
		Port:         f.AnyPort("port", p.GetPort()),
		HealthCheck:  f.HealthCheck("healthCheck", p.GetHealthCheck()),
		AllUnhealthy: model.AllUnhealthy(p.GetAllUnhealthy()),
		Affinity:     model.Affinity(p.GetAffinity()),
		IdleTimeout:  f.Duration("idleTimeout", p.GetIdleTimeout(), 0),
		SYNCookies:   model.SYNCookies(p.GetSynCookies()),
		Multipath:    f.multipath(p.GetMultipath()),
		Allow:        f.Prefixes("allow", p.GetAllow()),
		Deny:         f.Prefixes("deny", p.GetDeny()),
		AllowLists:   p.GetAllowLists(), DenyLists: p.GetDenyLists(),
	}
	if p.GetProtocol() != "" {
		e.Protocol = f.Protocol("protocol", p.GetProtocol())
	}
	if e.Multipath && e.Protocol != model.TCP {
		f.Refuse("multipath", "is for TCP")
	}
	if n := len(p.GetBackends()); e.Multipath && n > maxMultipathBackends {
		f.Refuse("multipath", "is for at most %d backends, are %d", maxMultipathBackends, n)
	}
	if p.GetIdleTimeout() != nil && e.IdleTimeout == 0 {
		f.Refuse("idleTimeout", "must be %s to %s, is 0s", model.MinIdle, model.MaxIdle)
	}
	if n := len(p.GetBackends()); n > 0 {
		e.Backends = make([]model.Backend, 0, n)
	}
	for i, b := range p.GetBackends() {
		e.Backends = append(e.Backends, f.Backend("backends", i, b, e.Port))
	}
	return e
}

// Backend reads a backend, of a list, of an endpoint of the port.
func (f *Fields) Backend(list string, i int, p *weirv1.Backend, port uint16) model.Backend {
	f.enter(list, i)
	defer f.leave()
	b := model.Backend{
		Address:      f.Address("address", p.GetAddress()),
		Port:         port,
		Host:         unique.Make(p.GetHost()).Value(), // many backends have it
		Weight:       1,
		FieldManager: p.GetFieldManager(),
	}
	if p.GetPort() != 0 {
		b.Port = f.Port("port", p.GetPort())
	}
	if p.Weight != nil {
		b.Weight = p.GetWeight()
	}
	if p.GetTunnel() != "" {
		b.Tunnel = f.Address("tunnel", p.GetTunnel())
	}
	return b
}

// HealthCheck reads one, with defaults for what was left out; nil stays nil.
func (f *Fields) HealthCheck(path string, p *weirv1.HealthCheck) *model.HealthCheck {
	if p == nil {
		return nil
	}
	f.enter(path, -1)
	defer f.leave()
	c := &model.HealthCheck{
		Interval: f.Duration("interval", p.GetInterval(), model.DefaultCheckInterval),
		Timeout:  f.Duration("timeout", p.GetTimeout(), model.DefaultCheckTimeout),
		Rise:     p.GetRise(), Fall: p.GetFall(),
	}
	switch check := p.GetCheck().(type) {
	case *weirv1.HealthCheck_Tcp:
		c.Type = model.CheckTCP
	case *weirv1.HealthCheck_Http:
		c.Type, c.Path, c.Host = model.CheckHTTP, cmp.Or(check.Http.GetPath(), "/"), check.Http.GetHost()
	case *weirv1.HealthCheck_Https:
		c.Type, c.Path, c.Host = model.CheckHTTPS, cmp.Or(check.Https.GetPath(), "/"), check.Https.GetHost()
		c.TLS = model.CheckTLS{On: true, ServerName: check.Https.GetTls().GetServerName(), CA: check.Https.GetTls().GetCa()}
	case *weirv1.HealthCheck_Grpc:
		c.Type, c.Service, c.Host = model.CheckGRPC, check.Grpc.GetService(), check.Grpc.GetHost()
		if t := check.Grpc.GetTls(); t != nil {
			c.TLS = model.CheckTLS{On: true, ServerName: t.GetServerName(), CA: t.GetCa()}
		}
	case *weirv1.HealthCheck_Udp:
		c.Type, c.Send, c.Expect = model.CheckUDP, check.Udp.GetSend(), check.Udp.GetExpect()
		c.AnswerOptional = f.answerOptional("udp.answer", check.Udp.GetAnswer())
	}
	if p.GetPort() != 0 {
		c.Port = f.Port("port", p.GetPort())
	}
	if c.Rise == 0 {
		c.Rise = model.DefaultCheckRise
	}
	if c.Fall == 0 {
		c.Fall = model.DefaultCheckFall
	}
	if p.GetTimeout() == nil && c.Interval > 0 {
		c.Timeout = min(c.Timeout, c.Interval)
	}
	return c
}

// Whether a check by UDP is to be answered.
const (
	answerRequired = "required"
	answerOptional = "optional"
)

func (f *Fields) answerOptional(path, s string) bool {
	if s != "" && s != answerRequired && s != answerOptional {
		f.Refuse(path, "must be %s or %s, is %.64q", answerRequired, answerOptional, s)
	}
	return s == answerOptional
}

func tlsMessage(t model.CheckTLS) *weirv1.CheckTLS {
	if !t.On {
		return nil
	}
	return &weirv1.CheckTLS{ServerName: t.ServerName, Ca: t.CA}
}

func udpMessage(c *model.HealthCheck) *weirv1.UDPCheck {
	p := &weirv1.UDPCheck{Send: c.Send, Expect: c.Expect}
	if c.AnswerOptional {
		p.Answer = answerOptional
	}
	return p
}

// VIPs reads a list of VIPs; the paths of its field errors begin with vips[i].
func VIPs(list []*weirv1.VIP) ([]model.VIP, error) {
	vips := make([]model.VIP, 0, len(list))
	var errs model.FieldErrorList
	for i, p := range list {
		vip, err := VIP(p)
		if err != nil {
			errs.Below(fmt.Sprintf("vips[%d]", i), err)
		}
		if errs.Len() == 0 { // none is needed when one is wrong
			vips = append(vips, vip)
		}
	}
	return vips, errs.Err()
}
