package muxd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/slowpath"
	"github.com/weirlb/weir/internal/telemetry"
)

// maxSeries bounds how many endpoints, and how many VIPs, have series of their own.
const maxSeries = 10000

// metrics are what a mux tells, beside those of its stream. Their labels take values from the mux's
// configuration and the names of verdicts alone.
var metrics = []telemetry.Metric{
	{
		Name: "weir_mux_info", Labels: []string{"interface", "mode", "encapsulation"},
		Help: "How the mux forwards: always 1.",
	},
	{Name: "weir_mux_packets_total", Help: "Packets by verdict.", Labels: []string{"verdict"}},
	{Name: "weir_mux_bytes_total", Help: "Bytes of packets by verdict.", Labels: []string{"verdict"}},
	{
		Name: "weir_mux_endpoint_packets_total", Labels: []string{"vip", "protocol", "port"},
		Help: "Packets sent to backends of the endpoint.",
	},
	{
		Name: "weir_mux_endpoint_bytes_total", Labels: []string{"vip", "protocol", "port"},
		Help: "Bytes of packets sent to backends of the endpoint.",
	},
	{
		Name: "weir_mux_vip_dropped_packets_total", Labels: []string{"vip"},
		Help: "Packets dropped by rate limits of the VIP, or by its fair share of the mux.",
	},
	{
		Name: "weir_mux_vip_dropped_bytes_total", Labels: []string{"vip"},
		Help: "Bytes of packets dropped by rate limits of the VIP, or by its fair share of the mux.",
	},
	{
		Name: "weir_mux_snat_packets_total", Labels: []string{"vip"},
		Help: "Return packets of source NAT sent to workloads of the VIP.",
	},
	{
		Name: "weir_mux_snat_bytes_total", Labels: []string{"vip"},
		Help: "Bytes of return packets of source NAT sent to workloads of the VIP.",
	},
	{
		Name: "weir_mux_snat_ranges", Labels: []string{"vip"},
		Help: "Ranges of 8 source NAT ports of the VIP that are allocated.",
	},
	{Name: "weir_mux_network_vips", Help: "VIPs of virtual networks whose packets are forwarded."},
	{
		Name: "weir_mux_network_vip_packets_total", Labels: []string{"network", "vip"},
		Help: "Packets of clients in the virtual network sent to backends of the VIP: with bypass, one of each connection.",
	},
	{
		Name: "weir_mux_network_vip_bytes_total", Labels: []string{"network", "vip"},
		Help: "Bytes of packets of clients in the virtual network sent to backends of the VIP.",
	},
	{
		Name: "weir_mux_nat_sessions", Labels: []string{"state"},
		Help: "Sessions of full NAT: half-open, open, or over and in quarantine. Only with a NAT prefix.",
	},
	{Name: "weir_mux_nat_session_capacity", Help: "Sessions of full NAT that there is room for. Only with a NAT prefix."},
	{Name: "weir_mux_nat_sessions_idle_total", Help: "Sessions of full NAT that were ended because they were idle."},
	{
		Name: "weir_mux_nat_tenant_sessions", Labels: []string{"tenant"},
		Help: "Sessions of full NAT of clients in networks of the tenant.",
	},
	{Name: "weir_mux_nat_tenant_session_limit", Labels: []string{"tenant"}, Help: "Most sessions of full NAT of a tenant."},
	{
		Name: "weir_mux_nat_tenant_refused_total", Labels: []string{"tenant"},
		Help: "Connections with full NAT that were refused because the tenant has its part of the sessions.",
	},
	{Name: "weir_mux_metrics_truncated", Help: "Endpoints whose series are left out because there are too many; 0: none."},
	{Name: "weir_mux_vips", Help: "VIPs whose packets are forwarded."},
	{Name: "weir_mux_vips_announced", Help: "VIPs that are announced, or may be as soon as a peer is up."},
	{Name: "weir_mux_neighbor_vips", Help: "VIPs that the mux answers ARP and NDP for. Only with a neighbor prefix."},
	{Name: "weir_mux_neighbor_lease_seconds", Help: "Time until the lease ends by which the mux answers ARP and NDP for VIPs; 0: it has none. Only with a neighbor prefix."},
	{Name: "weir_mux_neighbor_takeovers_total", Help: "VIPs that the mux began to answer ARP and NDP for. Only with a neighbor prefix."},
	{Name: "weir_mux_neighbor_conflicts_total", Help: "Claims of other stations to VIPs of the mux. Only with a neighbor prefix."},
	{Name: "weir_mux_generation", Help: "Generation of the tables in force."},
	{Name: "weir_mux_rejected_generation", Help: "Newer generation that was rejected; 0: none."},
	{Name: "weir_mux_table_rows", Help: "Rows of a table in use.", Labels: []string{"table"}},
	{Name: "weir_mux_table_capacity", Help: "Rows that a table has room for.", Labels: []string{"table"}},
	{
		Name: "weir_mux_flows", Labels: []string{"vip", "state"},
		Help: "Flows of a VIP in the flow table: seen once, or trusted.",
	},
	{
		Name: "weir_mux_flow_limit", Labels: []string{"vip"},
		Help: "Most trusted flows of a VIP; untrusted ones, seen once, have half of that.",
	},
	{
		Name: "weir_mux_flow_guaranteed", Labels: []string{"vip"},
		Help: "Trusted flows of a VIP that are never evicted for another tenant's: its guaranteed share of " +
			"the table; untrusted ones have half of that.",
	},
	{
		Name: "weir_mux_tenant_flows", Labels: []string{"tenant", "state"},
		Help: "Flows of all of a tenant's VIPs in the flow table: seen once, or trusted.",
	},
	{
		Name: "weir_mux_tenant_flow_limit", Labels: []string{"tenant"},
		Help: "Most trusted flows of a tenant; untrusted ones, seen once, have half of that.",
	},
	{
		Name: "weir_mux_tenant_flow_guaranteed", Labels: []string{"tenant"},
		Help: "Trusted flows of a tenant that are never evicted for another tenant's: its guaranteed share of " +
			"the table; untrusted ones have half of that.",
	},
	{Name: "weir_mux_flow_capacity", Help: "Flows that the flow table has room for."},
	{
		Name: "weir_mux_hosts", Labels: []string{"reachable"},
		Help: "Tunnel endpoints, by whether their next hop is resolved.",
	},
	{Name: "weir_mux_warnings", Help: "Warnings that the mux reports."},
	{
		Name: "weir_mux_overloaded",
		Help: "1 while packets are lost before the program sees them, or fair dropping prevents that.",
	},
	{
		Name: "weir_mux_interface_dropped_packets_total",
		Help: "Packets that the interface dropped before the program saw them.",
	},
	{
		Name: "weir_mux_bgp_session_up", Labels: []string{"peer"},
		Help: "1 while the BGP session with the peer is established.",
	},
	{
		Name: "weir_mux_bgp_session_changed_timestamp_seconds", Labels: []string{"peer"},
		Help: "When the session was established, or lost.",
	},
	{Name: "weir_mux_bgp_routes", Help: "Routes announced to the peer.", Labels: []string{"peer"}},
	{
		Name: "weir_mux_bfd_up", Labels: []string{"peer"},
		Help: "1 while BFD with the peer is up. Only of peers that have BFD.",
	},
	{
		Name: "weir_mux_slow_path_packets_total", Labels: []string{"reason"},
		Help: "Packets that the fast path handed to the slow path, by reason.",
	},
	{Name: "weir_mux_slow_path_frames_total", Help: "Frames of the slow path, by result.", Labels: []string{"result"}},
	{
		Name: "weir_mux_redirects_total", Labels: []string{"result"},
		Help: "Fastpath redirects to hosts, by result: sent, stays, failed.",
	},
	{Name: "weir_mux_syn_floods_total", Help: "SYN floods that were detected."},
	{
		Name: "weir_mux_syn_flooded_endpoints",
		Help: "Endpoints whose SYNs the mux answers with SYN cookies because of a flood.",
	},
	{
		Name: "weir_mux_syn_backlog_endpoints",
		Help: "Endpoints whose SYNs the mux answers with SYN cookies because the backlog of a backend is full.",
	},
	{
		Name: "weir_mux_datagrams_evicted_total", Labels: []string{"reason"},
		Help: "Fragmented datagrams whose state was evicted early, by whose datagrams took the room: the same " +
			"tenant's or another's.",
	},
	{Name: "weir_mux_slow_path_queued_fragments", Help: "Fragments that wait for the first fragment of their datagram."},
}

// Metrics describe all that a mux tells.
func Metrics() []prometheus.Collector {
	return append(telemetry.NewStream("weir_mux").Collectors(), telemetry.NewScrape(metrics, nil))
}

// observe has the mux's telemetry show it.
func (m *Mux) observe() {
	t := m.config.Telemetry
	t.Register(m.stream.Collectors()...)
	t.Register(
		telemetry.NewScrape(metrics, func(to *telemetry.Sample) {
			telemetry.Put(to, "weir_mux_info", 1,
				m.config.Interface, m.config.Datapath.Mode(), string(m.config.Settings.Encapsulation))
			telemetry.Put(to, "weir_mux_warnings", len(m.warnings()))
			m.state.Sample(to)
			m.routes.Sample(to)
			m.samplePackets(to)
			m.sampleUsage(to)
			samplePeers(to, m.config.Speaker.Peers())
			sampleSlowPath(to, m.config.SlowPathCounters)
			m.config.Redirector.Sample(to)
			m.floods.Sample(to)
			m.loads.Sample(to)
			if m.leases != nil {
				m.leases.Sample(to)
			}
		}))
	t.Ready("tables", m.state.Ready)
	t.Ready("bgp", func(context.Context) (string, error) { return peersReady(m.config.Speaker.Peers()) })
	t.Ready("manager", func(context.Context) (string, error) { return m.managerReady() })
}

// managerReady says how the stream stands. Tables from before a restart forward without any manager.
func (m *Mux) managerReady() (string, error) {
	stands, err := m.stream.Ready()
	if generation, _, _ := m.state.Generations(); err != nil && generation != 0 {
		return fmt.Sprintf("%v, going on with what runs", err), nil
	}
	return stands, err
}

// samplePackets tells the counters of the data plane.
func (m *Mux) samplePackets(to *telemetry.Sample) {
	verdicts, err := m.config.Datapath.Verdicts()
	telemetry.PutCounters(to, "weir_mux", verdicts, err)
	lost, err := m.config.Datapath.LostDatagrams()
	if err != nil {
		to.Fail("weir_mux_datagrams_evicted_total", err)
	}
	for whose, n := range lost {
		telemetry.Put(to, "weir_mux_datagrams_evicted_total", n, whose)
	}
	endpoints, err := m.config.Datapath.EndpointCounters()
	if err != nil {
		to.Fail("weir_mux_endpoint_packets_total", err)
	}
	if len(endpoints) > maxSeries {
		telemetry.Put(to, "weir_mux_metrics_truncated", len(endpoints))
		return
	}
	telemetry.Put(to, "weir_mux_metrics_truncated", 0)
	for key, c := range endpoints {
		vip, protocol, port := telemetry.Endpoint(key)
		telemetry.Put(to, "weir_mux_endpoint_packets_total", c.Packets, vip, protocol, port)
		telemetry.Put(to, "weir_mux_endpoint_bytes_total", c.Bytes, vip, protocol, port)
	}
	refused, err := m.config.Datapath.RefusedCounters()
	telemetry.PutCounters(to, "weir_mux_vip_dropped", refused, err)
	answers, err := m.config.Datapath.SNATCounters() // a mux has room for few of them
	telemetry.PutCounters(to, "weir_mux_snat", answers, err)
}

// sampleUsage tells how full the tables are.
func (m *Mux) sampleUsage(to *telemetry.Sample) {
	usage, err := m.config.Datapath.Usage()
	if err != nil {
		to.Fail("weir_mux_flows", err)
		return
	}
	tables := []struct {
		name       string
		used, size uint64
	}{
		{"endpoints", usage.Endpoints.Used, usage.Endpoints.Size},
		{"buckets", usage.Buckets.Used, usage.Buckets.Size},
		{"backends", usage.Backends.Used, usage.Backends.Size},
		{"snat_ranges", usage.SNATRanges.Used, usage.SNATRanges.Size},
		{"snat_owners", usage.SNATOwners.Used, usage.SNATOwners.Size},
	}
	for _, t := range tables {
		telemetry.Put(to, "weir_mux_table_rows", t.used, t.name)
		telemetry.Put(to, "weir_mux_table_capacity", t.size, t.name)
	}
	for vip, ranges := range usage.SNAT {
		telemetry.Put(to, "weir_mux_snat_ranges", ranges, vip.String())
	}
	telemetry.Put(to, "weir_mux_flow_capacity", usage.FlowCells)
	if len(usage.VIPs) > maxSeries {
		return
	}
	for _, of := range usage.Tenants {
		telemetry.Put(to, "weir_mux_tenant_flows", of.Flows.Untrusted, of.Tenant, "seen_once")
		telemetry.Put(to, "weir_mux_tenant_flows", of.Flows.Trusted, of.Tenant, "trusted")
		telemetry.Put(to, "weir_mux_tenant_flow_limit", of.Limit, of.Tenant)
		telemetry.Put(to, "weir_mux_tenant_flow_guaranteed", of.Guaranteed, of.Tenant)
	}
	for _, v := range usage.VIPs {
		telemetry.Put(to, "weir_mux_flows", v.Flows.Untrusted, v.VIP.String(), "seen_once")
		telemetry.Put(to, "weir_mux_flows", v.Flows.Trusted, v.VIP.String(), "trusted")
		telemetry.Put(to, "weir_mux_flow_limit", v.Limit, v.VIP.String())
		telemetry.Put(to, "weir_mux_flow_guaranteed", v.Guaranteed, v.VIP.String())
	}
}

// samplePeers tells how the sessions stand.
func samplePeers(to *telemetry.Sample, peers []bgp.PeerState) {
	for _, p := range peers {
		peer := p.Address.String()
		telemetry.PutIf(to, "weir_mux_bgp_session_up", p.Established(), peer)
		telemetry.Put(to, "weir_mux_bgp_session_changed_timestamp_seconds", float64(p.Since.UnixMilli())/1000, peer)
		telemetry.Put(to, "weir_mux_bgp_routes", p.Routes, peer)
		if p.BFD != "off" {
			telemetry.PutIf(to, "weir_mux_bfd_up", p.BFD == "up", peer)
		}
	}
}

// peersReady says what is missing until one peer at least has the routes.
func peersReady(peers []bgp.PeerState) (string, error) {
	if len(peers) == 0 {
		return "no peers are configured", nil
	}
	var up int
	var lost []string
	for _, p := range peers {
		if p.Established() {
			up++
			continue
		}
		why := p.LastError
		if why == "" {
			why = p.State
		}
		lost = append(lost, fmt.Sprintf("%s: %s", p.Address, why))
	}
	if up == 0 {
		return "", errors.New("no session is up: " + strings.Join(lost, "; "))
	}
	return strings.Join(append([]string{fmt.Sprintf("%d of %d sessions are up", up, len(peers))}, lost...), "; "), nil
}

// sampleSlowPath tells what the slow path did, where there is one.
func sampleSlowPath(to *telemetry.Sample, c *slowpath.Counters) {
	if c == nil {
		return
	}
	const packets, frames = "weir_mux_slow_path_packets_total", "weir_mux_slow_path_frames_total"
	telemetry.Put(to, packets, c.Fragments.Load(), "fragment")
	telemetry.Put(to, packets, c.Errors.Load(), "icmp_error")
	telemetry.Put(to, packets, c.Splits.Load(), "split")
	telemetry.Put(to, frames, c.Sent.Load(), "sent")
	telemetry.Put(to, frames, c.Failed.Load(), "failed")
	telemetry.Put(to, frames, c.Overflowed.Load(), "no_room")
	telemetry.Put(to, frames, c.Expired.Load(), "expired")
	telemetry.Put(to, frames, c.Limited.Load(), "limited")
	telemetry.Put(to, "weir_mux_slow_path_queued_fragments", c.Held.Load())
}
