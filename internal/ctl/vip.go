package ctl

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manifest"
	"github.com/weirlb/weir/internal/model"
)

// vipStatus is the status of a manifest.Document, in the words of the API.
type vipStatus struct {
	Generation      uint64           `json:"generation"`
	MuxesProgrammed uint32           `json:"muxesProgrammed"`
	MuxesTotal      uint32           `json:"muxesTotal"`
	Rejections      []string         `json:"rejections,omitempty"`
	Conditions      []message        `json:"conditions,omitempty"`
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

// vipDocuments turns VIPs of the API into manifests with their status.
func vipDocuments(vips []*weirv1.VIP) []manifest.Document {
	documents := make([]manifest.Document, 0, len(vips))
	for _, p := range vips {
		documents = append(documents, manifest.Document{Message: p, Status: newVIPStatus(p)})
	}
	return documents
}

func newVIPStatus(p *weirv1.VIP) vipStatus {
	status := vipStatus{
		Generation: p.GetStatus().GetGeneration(), Rejections: p.GetStatus().GetRejections(),
		MuxesProgrammed: p.GetStatus().GetMuxesProgrammed(), MuxesTotal: p.GetStatus().GetMuxesTotal(),
		Conditions: messages(p.GetStatus().GetConditions()),
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

func vipTable(vips []*weirv1.VIP) *columns {
	t := newColumns("", "no VIPs: weir apply -f FILE makes some",
		"NAME", "TENANT", "ADDRESS", "ENDPOINTS", "BACKENDS", "MUXES")
	for _, vip := range vips {
		var endpoints []string
		var all tally
		for _, e := range vip.GetEndpoints() {
			endpoints = append(endpoints, e.GetProtocol()+"/"+portName(e.GetPort()))
			for _, b := range e.GetBackends() {
				all.add(b)
			}
		}
		t.add(vip.GetName(), vip.GetTenant(), vip.GetAddress(), strings.Join(endpoints, ","), all, muxShare(vip)+overloadHint(vip))
	}
	return t
}

// muxShare is "2/2": the muxes that run the VIP's tables, of all.
func muxShare(vip *weirv1.VIP) string {
	return fmt.Sprintf("%d/%d", vip.GetStatus().GetMuxesProgrammed(), vip.GetStatus().GetMuxesTotal())
}

// tally counts backends by what becomes of new connections.
type tally struct{ total, serving, draining, down, unknown int }

func (t *tally) add(b *weirv1.Backend) {
	t.total++
	switch health := model.Health(b.GetStatus().GetHealth()); {
	case b.Weight != nil && b.GetWeight() == 0:
		t.draining++
	case health == model.HealthUnhealthy:
		t.down++
	case health == model.HealthUnknown || health == "":
		t.unknown++
	default:
		t.serving++
	}
}

// String is "5/6 (1 unhealthy)": those that serve, of all, and why others do not.
func (t tally) String() string {
	text := fmt.Sprintf("%d/%d", t.serving, t.total)
	var rest []string
	for _, c := range []struct {
		n    int
		what string
	}{{t.down, "unhealthy"}, {t.unknown, "unknown"}, {t.draining, "draining"}} {
		if c.n > 0 {
			rest = append(rest, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if len(rest) > 0 {
		text += " (" + strings.Join(rest, ", ") + ")"
	}
	return text
}

// portName is the port of an endpoint: "80" or "all".
func portName(port uint32) string {
	if port == model.AllPorts {
		return "all"
	}
	return strconv.FormatUint(uint64(port), 10)
}

// endpointName is "TCP 203.0.113.10:80".
func endpointName(k *weirv1.EndpointKey) string {
	return k.GetProtocol() + " " + net.JoinHostPort(k.GetVip(), portName(k.GetPort()))
}

// hostPort is "10.3.1.11:8080" or "[fd00::1]:8080"; of a backend of all ports it is the address alone.
func hostPort(address string, port uint32) string {
	if port == model.AllPorts {
		return address
	}
	return net.JoinHostPort(address, strconv.FormatUint(uint64(port), 10))
}

// backendState is what a line about a backend says of it.
func backendState(b *weirv1.Backend) string {
	state := b.GetStatus().GetHealth()
	if reason := b.GetStatus().GetReason(); reason != "" {
		state += ": " + reason
	}
	if b.Weight != nil && b.GetWeight() == 0 {
		state += ", draining"
	}
	return state
}
