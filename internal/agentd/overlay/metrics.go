package overlay

import (
	"maps"
	"slices"

	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/telemetry"
)

var (
	ofVIP, ofVIPAndDirection = []string{"network", "vip"}, []string{"network", "vip", "direction"}
	ofBackend                = []string{"network", "vip", "protocol", "port", "tunnel"}
)

// mostBackendSeries is how many backends of attachments have series of their own.
const mostBackendSeries = 1000

// Metrics are what Sample tells. Their labels take values from the attachments of the host alone.
func Metrics() []telemetry.Metric {
	return []telemetry.Metric{
		{Name: "weir_agent_network_packets_total", Help: "Packets by verdict of the programs of virtual networks.", Labels: []string{"verdict"}},
		{Name: "weir_agent_network_bytes_total", Help: "Bytes of these packets by verdict.", Labels: []string{"verdict"}},
		{Name: "weir_agent_network_attachments", Help: "VIPs in virtual networks that this host has to do with."},
		{Name: "weir_agent_network_ports", Help: "Interfaces of virtual networks' workloads that were found on this host."},
		{Name: "weir_agent_network_sessions", Help: "Sessions of virtual networks' clients with backends here, at the last sweep, by state.", Labels: []string{"state"}},
		{Name: "weir_agent_network_session_capacity", Help: "Sessions that the table has room for; 0: it is not loaded."},
		{Name: "weir_agent_network_sessions_ended_total", Help: "Sessions that the agent ended by resets to both ends, by why.", Labels: []string{"reason"}},
		{Name: "weir_agent_network_tenant_sessions", Help: "Sessions of a network's tenant.", Labels: []string{"tenant"}},
		{Name: "weir_agent_network_flows", Help: "Connections of virtual networks' workloads here that are remembered, at the last sweep."},
		{Name: "weir_agent_network_server_packets_total", Help: "Packets between backends here and clients of a VIP in a network: in or out.", Labels: ofVIPAndDirection},
		{Name: "weir_agent_network_server_bytes_total", Help: "Bytes of these packets.", Labels: ofVIPAndDirection},
		{Name: "weir_agent_network_connections_total", Help: "Connections that clients of a VIP in a network began with backends here, by result: opened, confirmed or refused.", Labels: []string{"network", "vip", "result"}},
		{Name: "weir_agent_network_resets_total", Help: "Resets to clients for segments of no session.", Labels: ofVIP},
		{Name: "weir_agent_network_handshake_duration_seconds", Help: "Time from the SYN-ACK of a backend here to the acknowledgement of a VIP's client: a round trip between both.", Labels: ofVIP},
		{Name: "weir_agent_network_backend_packets_total", Help: "Packets between a backend here and clients of a VIP in a network: in or out.", Labels: append(slices.Clone(ofBackend), "direction")},
		{Name: "weir_agent_network_backend_bytes_total", Help: "Bytes of these packets.", Labels: append(slices.Clone(ofBackend), "direction")},
		{Name: "weir_agent_network_backend_connections_total", Help: "Connections that clients of a VIP in a network began with a backend here, by result: opened, confirmed, refused, reset by an end, or cleaned; and SYNs that were repeated.", Labels: append(slices.Clone(ofBackend), "result")},
		{Name: "weir_agent_network_backend_sessions", Help: "Open sessions of a backend here with clients of a VIP in a network, at the last sweep.", Labels: ofBackend},
		{Name: "weir_agent_network_metrics_truncated", Help: "Backends of networks' VIPs whose series are left out because there are too many; 0: none."},
		{Name: "weir_agent_network_client_packets_total", Help: "Packets of workloads here to a VIP, or from it: straight to its backends' hosts (direct), by the muxes (mux), and delivered (in).", Labels: ofVIPAndDirection},
		{Name: "weir_agent_network_client_bytes_total", Help: "Bytes of these packets.", Labels: ofVIPAndDirection},
		{Name: "weir_agent_network_client_connections_total", Help: "Connections of workloads here with a VIP, by result: begun, repeated, learnt, relearnt or lost.", Labels: []string{"network", "vip", "result"}},
	}
}

// Counts are the packets that the programs had, by those verdicts that some had, and the open sessions at the last sweep.
func (c *Controller) Counts() (verdicts map[string]model.Counter, sessions int, err error) {
	if c == nil {
		return nil, 0, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.datapath == nil {
		return nil, 0, nil
	}
	verdicts, err = c.datapath.Verdicts()
	maps.DeleteFunc(verdicts, func(_ string, n model.Counter) bool { return n.Packets == 0 })
	return verdicts, c.state.sessions.Open, err
}

// Sample tells what the programs have counted. Without programs it tells that there are none.
func (c *Controller) Sample(to *telemetry.Sample) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	telemetry.Put(to, "weir_agent_network_attachments", len(c.wanted.attachments))
	telemetry.Put(to, "weir_agent_network_ports", c.state.ports)
	telemetry.Put(to, "weir_agent_network_flows", c.state.flows)
	for state, n := range map[string]int{"open": c.state.sessions.Open, "half_open": c.state.sessions.HalfOpen, "over": c.state.sessions.Over} {
		telemetry.Put(to, "weir_agent_network_sessions", n, state)
	}
	for _, why := range []overlay.End{overlay.Idle, overlay.Removed, overlay.Detached, overlay.Forbidden} {
		telemetry.Put(to, "weir_agent_network_sessions_ended_total", c.state.ended[why], string(why))
	}
	if c.datapath == nil {
		telemetry.Put(to, "weir_agent_network_session_capacity", 0)
		return
	}
	telemetry.Put(to, "weir_agent_network_session_capacity", c.datapath.Rows())
	verdicts, err := c.datapath.Verdicts()
	telemetry.PutCounters(to, "weir_agent_network", verdicts, err)
	for name, number := range c.tenants.of {
		telemetry.Put(to, "weir_agent_network_tenant_sessions", c.datapath.Usage(number).Rows, name)
	}
	for key, number := range c.attachments.of {
		network, vip := c.wanted.networks[key.VNI].Name, key.VIP.String()
		if network == "" {
			continue // of an earlier process: nobody has told the name yet
		}
		sampleAttachment(to, c.datapath, number, network, vip)
	}
	sampleBackends(to, c)
}

// sampleBackends tells the series of attachments that have backends here, and of these backends.
func sampleBackends(to *telemetry.Sample, c *Controller) {
	all, err := statisticsOf(c)
	if err != nil {
		to.Fail("weir_agent_network_backend_packets_total", err)
		return
	}
	backends, truncated := len(c.backends.of), 0
	if backends > mostBackendSeries {
		truncated = backends
	}
	telemetry.Put(to, "weir_agent_network_metrics_truncated", truncated)
	for _, s := range all {
		if s.Network == "" {
			continue
		}
		network, vip := s.Network, s.VIP.String()
		buckets, sum := map[float64]uint64{}, uint64(0)
		for i := range overlay.RTTBuckets - 1 {
			sum += s.Handshakes.Buckets[i]
			buckets[overlay.RTTBound(i).Seconds()] = sum
		}
		telemetry.PutHistogram(to, "weir_agent_network_handshake_duration_seconds", s.Handshakes.Count(), s.Handshakes.Sum.Seconds(), buckets, network, vip)
		for _, b := range s.Backends {
			if truncated == 0 {
				sampleBackend(to, b, network, vip)
			}
		}
	}
}

func sampleBackend(to *telemetry.Sample, b BackendStatistics, network, vip string) {
	_, protocol, port := telemetry.Endpoint(model.EndpointKey{Protocol: b.Protocol, Port: b.Port})
	tunnel := b.Tunnel.String()
	for direction, n := range map[string]model.Counter{"in": b.In, "out": b.Out} {
		telemetry.Put(to, "weir_agent_network_backend_packets_total", n.Packets, network, vip, protocol, port, tunnel, direction)
		telemetry.Put(to, "weir_agent_network_backend_bytes_total", n.Bytes, network, vip, protocol, port, tunnel, direction)
	}
	for result, n := range map[string]uint64{
		"opened": b.Opened, "confirmed": b.Confirmed, "refused": b.Refused, "reset": b.Reset, "cleaned": b.Cleaned, "repeated": b.Repeated,
	} {
		telemetry.Put(to, "weir_agent_network_backend_connections_total", n, network, vip, protocol, port, tunnel, result)
	}
	telemetry.Put(to, "weir_agent_network_backend_sessions", b.Open, network, vip, protocol, port, tunnel)
}

func sampleAttachment(to *telemetry.Sample, d *overlay.Datapath, number uint32, network, vip string) {
	served, err := d.Traffic(number)
	if err != nil {
		to.Fail("weir_agent_network_server_packets_total", err)
		return
	}
	used, err := d.ClientTraffic(number)
	if err != nil {
		to.Fail("weir_agent_network_client_packets_total", err)
		return
	}
	for direction, n := range map[string]model.Counter{"in": served.In, "out": served.Out} {
		telemetry.Put(to, "weir_agent_network_server_packets_total", n.Packets, network, vip, direction)
		telemetry.Put(to, "weir_agent_network_server_bytes_total", n.Bytes, network, vip, direction)
	}
	for direction, n := range map[string]model.Counter{"direct": used.Direct, "mux": used.ByMux, "in": used.In} {
		telemetry.Put(to, "weir_agent_network_client_packets_total", n.Packets, network, vip, direction)
		telemetry.Put(to, "weir_agent_network_client_bytes_total", n.Bytes, network, vip, direction)
	}
	for result, n := range map[string]uint64{"opened": served.Opened, "confirmed": served.Confirmed, "refused": served.Refused} {
		telemetry.Put(to, "weir_agent_network_connections_total", n, network, vip, result)
	}
	telemetry.Put(to, "weir_agent_network_resets_total", served.Resets, network, vip)
	for result, n := range map[string]uint64{
		"begun": used.Begun, "repeated": used.Repeated, "learnt": used.Learnt, "relearnt": used.Relearnt, "lost": used.Lost,
	} {
		telemetry.Put(to, "weir_agent_network_client_connections_total", n, network, vip, result)
	}
}
