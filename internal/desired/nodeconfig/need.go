package nodeconfig

import (
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// AnswersSYNs says whether a host has a backend whose endpoint may answer SYNs with cookies.
func AnswersSYNs(s desired.State, host string) bool {
	for vip := range s.VIPsOn(host) {
		for _, e := range vip.Endpoints {
			if e.WhenSYNCookies() != model.SYNCookiesNever && hasBackendOn(e, host) {
				return true
			}
		}
	}
	return false
}

// HasFastpath says whether a host has a backend whose connections may leave the muxes, or a workload that leaves as a VIP,
// so that it may be the client of such a connection.
func HasFastpath(s desired.State, host string) bool {
	for range s.SNATClientsOn(host) {
		return true
	}
	if !desired.WantsFastpath(s) {
		return false
	}
	for vip := range s.VIPsOn(host) {
		for _, e := range vip.Endpoints {
			if vip.Fastpath == nil || !hasBackendOn(e, host) {
				continue
			}
			if leave, _ := fastpathClients(s.PrefixLists, vip.Fastpath, e); len(leave) > 0 {
				return true
			}
		}
	}
	return false
}

func hasBackendOn(e model.Endpoint, host string) bool {
	return slices.ContainsFunc(e.Backends, func(b model.Backend) bool { return b.Host == host })
}
