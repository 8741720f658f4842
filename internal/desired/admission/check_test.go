package admission

import (
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// A check that a host's agent does not know is refused with what to do; what was there before the host joined may stay.
func TestChecksThatAnOlderAgentDoesNotKnow(t *testing.T) {
	checked := func(kind model.CheckType, hosts ...string) model.VIP {
		vip := newVIP("shop", "203.0.113.10")
		for i, host := range hosts {
			vip.Endpoints[0].Backends = append(vip.Endpoints[0].Backends, on(host, "10.3.7."+string(rune('1'+i))))
		}
		vip.Endpoints[0].HealthCheck = &model.HealthCheck{Type: kind}
		return vip
	}
	const refused = "vips[0].endpoints[0].healthCheck: the weir-agent of host older, v0.8, is of the release before and knows no check by "
	for name, c := range map[string]struct {
		was  *model.VIP
		vip  model.VIP
		want string
	}{
		"https":               {nil, checked(model.CheckHTTPS, "newer", "older"), refused + "https: upgrade weir-agent on older first"},
		"grpc":                {nil, checked(model.CheckGRPC, "older"), refused + "grpc"},
		"udp":                 {nil, checked(model.CheckUDP, "older"), refused + "udp"},
		"http":                {nil, checked(model.CheckHTTP, "older"), ""},
		"newer agents":        {nil, checked(model.CheckHTTPS, "newer", "not-joined"), ""},
		"as before":           {new(checked(model.CheckHTTPS, "older")), checked(model.CheckHTTPS, "older", "newer"), ""},
		"a further old host":  {new(checked(model.CheckHTTPS, "newer")), checked(model.CheckHTTPS, "newer", "older"), refused + "https"},
		"another check there": {new(checked(model.CheckHTTP, "older")), checked(model.CheckHTTPS, "older"), refused + "https"},
	} {
		s := state(nil, model.Node{Name: "older", Role: model.RoleHost, Version: "v0.8"}, model.Node{Name: "newer", Role: model.RoleHost, Version: "v0.9", Multipath: true})
		if c.was != nil {
			s.PutVIP(*c.was)
		}
		_, err := VIPs(s, []model.VIP{c.vip}, false)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
