package admission

import (
	"fmt"

	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
)

// checks holds that the hosts of a VIP know its checks. What was there before may stay: a host that joined later with an
// older agent is told of another check.
func checks(a *admission, path string, was, vip model.VIP) {
	before := map[string]bool{} // endpoint, type and host
	key := func(e model.Endpoint, host string) string {
		return fmt.Sprintf("%s/%d %s %s", e.Protocol, e.Port, e.HealthCheck.Type, host)
	}
	for _, e := range was.Endpoints {
		for _, b := range e.Backends {
			if e.HealthCheck != nil {
				before[key(e, b.Host)] = true
			}
		}
	}
	for i, e := range vip.Endpoints {
		for _, b := range e.Backends {
			if nodeconfig.LacksCheck(a.State, b.Host, e.HealthCheck) && !before[key(e, b.Host)] {
				a.refuse(fmt.Sprintf("%s.endpoints[%d].healthCheck", path, i),
					"the weir-agent of host %s, %s, is of the release before and knows no check by %s: upgrade weir-agent on %[1]s first, or check by tcp until then",
					b.Host, a.Nodes.At(b.Host).Version, e.HealthCheck.Type)
				break
			}
		}
	}
}
