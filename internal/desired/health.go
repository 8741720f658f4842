package desired

import (
	"net/netip"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sorted"
)

// Health is what agents said last of the backends on their hosts, by host.
type Health struct{ sorted.Map[string, HostHealth] }

// HostHealth is what one host's agent said last of each backend.
type HostHealth map[HealthKey]model.BackendHealth

// HealthKey names a backend of an endpoint.
type HealthKey struct {
	Endpoint model.EndpointKey
	Backend  netip.AddrPort
}

// Clone returns a Health that may be written to.
func (h Health) Clone() Health { return Health{h.Map.Clone()} }

// Of is the health of backend b of endpoint e, unchecked or unknown where there is no report of it.
func (h Health) Of(vip model.VIP, e model.Endpoint, b model.Backend) model.BackendHealth {
	if e.HealthCheck == nil {
		return model.BackendHealth{Health: model.HealthUnchecked}
	}
	reported, there := h.At(b.Host)[HealthKey{Endpoint: Key(vip, e), Backend: b.AddrPort()}]
	if !there {
		return model.BackendHealth{Health: model.HealthUnknown}
	}
	return reported
}
