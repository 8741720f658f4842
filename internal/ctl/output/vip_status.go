package output

import weirv1 "github.com/weirlb/weir/api/v1"

// vipStatus is the status of a manifest.Document, in the words of the API.
type vipStatus struct {
	Generation      uint64           `json:"generation"`
	MuxesProgrammed uint32           `json:"muxesProgrammed"`
	MuxesTotal      uint32           `json:"muxesTotal"`
	Rejections      []string         `json:"rejections,omitempty"`
	Conditions      []Message        `json:"conditions,omitempty"`
	Endpoints       []endpointStatus `json:"endpoints"`
}

type endpointStatus struct {
	Protocol string          `json:"protocol"`
	Port     uint32          `json:"port"`
	Backends []backendStatus `json:"backends,omitempty"`
}

type backendStatus struct {
	Address         string `json:"address"`
	Port            uint32 `json:"port"`
	Slot            uint32 `json:"slot"`
	Health          string `json:"health"`
	Reason          string `json:"reason,omitempty"`
	Buckets         uint32 `json:"buckets"`
	BucketsTotal    uint32 `json:"bucketsTotal"`
	BucketsDraining uint32 `json:"bucketsDraining,omitempty"`

	Sessions              uint64 `json:"sessions"`
	SessionsWithoutCookie uint64 `json:"sessionsWithoutCookie"`
}

// VIPStatus is the status of a VIP as its document has it.
func VIPStatus(p *weirv1.VIP) any {
	status := vipStatus{
		Generation: p.GetStatus().GetGeneration(), Rejections: p.GetStatus().GetRejections(),
		MuxesProgrammed: p.GetStatus().GetMuxesProgrammed(), MuxesTotal: p.GetStatus().GetMuxesTotal(),
		Conditions: Messages(p.GetStatus().GetConditions()),
	}
	for _, e := range p.GetEndpoints() {
		endpoint := endpointStatus{Protocol: e.GetProtocol(), Port: e.GetPort()}
		for _, b := range e.GetBackends() {
			endpoint.Backends = append(endpoint.Backends, backendStatus{
				Address: b.GetAddress(), Port: b.GetPort(), Slot: b.GetStatus().GetSlot(),
				Health: b.GetStatus().GetHealth(), Reason: b.GetStatus().GetReason(),
				Buckets: b.GetStatus().GetBuckets(), BucketsTotal: b.GetStatus().GetBucketsTotal(),
				BucketsDraining: b.GetStatus().GetBucketsDraining(), Sessions: b.GetStatus().GetSessions(),
				SessionsWithoutCookie: b.GetStatus().GetSessionsWithoutCookie(),
			})
		}
		status.Endpoints = append(status.Endpoints, endpoint)
	}
	return status
}
