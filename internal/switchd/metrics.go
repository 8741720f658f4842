package switchd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/switchd/entries"
	"github.com/weirlb/weir/internal/switchd/ports"
	"github.com/weirlb/weir/internal/telemetry"
)

// peerMetrics are of the sessions with the switch's router.
var peerMetrics = []telemetry.Metric{
	{Name: "weir_switch_bgp_session_up", Labels: []string{"peer"}, Help: "1 while the BGP session with the peer is established."},
	{
		Name: "weir_switch_bgp_session_changed_timestamp_seconds", Labels: []string{"peer"},
		Help: "When the session was established, or lost.",
	},
	{Name: "weir_switch_bgp_routes", Help: "Routes announced to the peer.", Labels: []string{"peer"}},
}

// Metrics describe all that a switch tells.
func Metrics() []prometheus.Collector {
	return append(telemetry.NewStream("weir_switch").Collectors(), entries.NewDurations(), telemetry.NewScrape(slices.Concat(entries.Metrics, peerMetrics, ports.Metrics), nil))
}

// observe has the switch's telemetry show it.
func (s *Switch) observe() {
	t := s.config.Telemetry
	t.Register(s.stream.Collectors()...)
	t.Register(s.entries.Took, telemetry.NewScrape(slices.Concat(entries.Metrics, peerMetrics, ports.Metrics), func(to *telemetry.Sample) {
		s.entries.Sample(to)
		s.ports.Sample(to)
		for _, p := range s.config.Speaker.Peers() {
			peer := p.Address.String()
			telemetry.PutIf(to, "weir_switch_bgp_session_up", p.Established(), peer)
			telemetry.Put(to, "weir_switch_bgp_session_changed_timestamp_seconds", float64(p.Since.UnixMilli())/1000, peer)
			telemetry.Put(to, "weir_switch_bgp_routes", p.Routes, peer)
		}
	}))
	t.Ready("entries", func(context.Context) (string, error) { return s.entries.Ready() })
	t.Ready("bgp", func(context.Context) (string, error) { return peersReady(s.config.Speaker.Peers()) })
	t.Ready("manager", func(context.Context) (string, error) { return s.stream.Ready() })
}

// peersReady says what is missing until a peer has the routes.
func peersReady(peers []bgp.PeerState) (string, error) {
	var lost []string
	for _, p := range peers {
		if p.Established() {
			return fmt.Sprintf("the session with %s is up", p.Address), nil
		}
		why := p.LastError
		if why == "" {
			why = p.State
		}
		lost = append(lost, fmt.Sprintf("%s: %s", p.Address, why))
	}
	return "", errors.New("no session is up: " + strings.Join(lost, "; "))
}
