package nodeconfig

import (
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// LacksCheck says whether a host that has joined runs an agent of the release before, which refuses all that it is told, of
// every VIP, when one check is of a type that it does not know. Agents that know them are those that say that they know
// multipath, as both came with the same release.
func LacksCheck(s desired.State, host string, check *model.HealthCheck) bool {
	if check == nil || check.Type == model.CheckTCP || check.Type == model.CheckHTTP {
		return false
	}
	node, there := s.Nodes.Get(host)
	return there && node.Role == model.RoleHost && !node.Multipath
}

// checkAt is how a host is told to check a backend: one that lacks the check opens a connection instead, and checks nothing
// by UDP.
func checkAt(s desired.State, host string, check *model.HealthCheck) *model.HealthCheck {
	switch {
	case !LacksCheck(s, host, check):
		return check
	case check.Type == model.CheckUDP:
		return nil
	}
	return &model.HealthCheck{
		Type: model.CheckTCP, Port: check.Port, Interval: check.Interval, Timeout: check.Timeout, Rise: check.Rise, Fall: check.Fall,
	}
}
