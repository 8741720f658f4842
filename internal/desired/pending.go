package desired

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// WhyPending says why nothing is served on a host, or nothing: it is written before it joins, or it is another node's name.
func WhyPending(s *State, host string) string {
	switch node, there := s.Nodes.Get(host); {
	case !there:
		return fmt.Sprintf("host %s has not joined", host)
	case node.Role != model.RoleHost:
		return fmt.Sprintf("%s is a %s, not a host", host, node.Role)
	}
	return ""
}

// IsPending says whether a host has not joined.
func IsPending(s *State, host string) bool { return s.Nodes.At(host).Role != model.RoleHost }

// HealthOf is the health of backend b of endpoint e. One whose host has not joined is pending: it is in no bucket,
// whatever the endpoint's policy is.
func HealthOf(s *State, vip model.VIP, e model.Endpoint, b model.Backend) model.BackendHealth {
	if IsPending(s, b.Host) {
		return model.BackendHealth{Health: model.HealthPending, Reason: WhyPending(s, b.Host)}
	}
	return s.Health.Of(vip, e, b)
}

// MaxPending is how many hosts are named of those that something waits for.
const MaxPending = 10

// PendingHosts are why hosts that a VIP names serve nothing, one line each, in order, at most MaxPending: the last
// says how many more there are.
func PendingHosts(s *State, vip model.VIP) []string {
	return PendingOf(s, func(yield func(string) bool) {
		eachPlace(vip, func(p place) { yield(p.host) })
	})
}

// PendingOf is PendingHosts of these hosts.
func PendingOf(s *State, hosts iter.Seq[string]) []string {
	pending := map[string]bool{}
	for host := range hosts {
		if IsPending(s, host) {
			pending[host] = true
		}
	}
	if len(pending) == 0 { // as mostly
		return nil
	}
	var lines []string
	for i, host := range slices.Sorted(maps.Keys(pending)) {
		if i == MaxPending-1 && len(pending) > MaxPending {
			return append(lines, fmt.Sprintf("%d more hosts have not joined", len(pending)-i))
		}
		lines = append(lines, WhyPending(s, host))
	}
	return lines
}
