package nodeconfig

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// A host whose agent is of the release before is told of no check that it does not know, for which it would refuse all that
// it is told; others are.
func TestOlderAgentsAreToldOfChecksThatTheyKnow(t *testing.T) {
	var s desired.State
	s.PutNode(model.Node{Name: "older", Role: model.RoleHost})
	s.PutNode(model.Node{Name: "newer", Role: model.RoleHost, Multipath: true})
	for kind, older := range map[model.CheckType]model.CheckType{
		model.CheckTCP: model.CheckTCP, model.CheckHTTP: model.CheckHTTP, model.CheckHTTPS: model.CheckTCP, model.CheckGRPC: model.CheckTCP, model.CheckUDP: "",
	} {
		check := &model.HealthCheck{Type: kind, Port: 8443, Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
		if kind == model.CheckHTTP {
			check.Path = "/"
		}
		vip := model.VIP{Name: "shop", Address: netip.MustParseAddr("203.0.113.10"), Endpoints: []model.Endpoint{{
			Protocol: model.TCP, Port: 80, HealthCheck: check, Backends: []model.Backend{
				{Address: netip.MustParseAddr("10.3.1.1"), Port: 80, Host: "older"},
				{Address: netip.MustParseAddr("10.3.2.1"), Port: 80, Host: "newer"},
				{Address: netip.MustParseAddr("10.3.3.1"), Port: 80, Host: "not-joined"},
			},
		}}}
		told := map[string]*model.HealthCheck{}
		EachBackend(s, vip, func(host string, b model.HostBackend) { told[host] = b.HealthCheck })
		if told["newer"] != check || told["not-joined"] != check {
			t.Errorf("%s: others are told of %+v", kind, told)
		}
		switch got := told["older"]; {
		case older == "" && got == nil:
		case got == nil || got.Type != older || got.Port != 8443 || got.Fall != 3 || len(got.Problems("")) > 0:
			t.Errorf("%s: an older agent is told of %+v", kind, got)
		}
	}
}
