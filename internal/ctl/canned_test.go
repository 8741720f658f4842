package ctl

import (
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
)

// now is when run takes place.
var now = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

func before(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }

// canned is a manager that answers with fixed resources: states that a real one takes long to get
// into.
type canned struct {
	weirv1connect.UnimplementedWeirServiceHandler
	vips   []*weirv1.VIP
	status *weirv1.GetStatusResponse
}

func (c *canned) ListVIPs(context.Context, *weirv1.ListVIPsRequest) (*weirv1.ListVIPsResponse, error) {
	return &weirv1.ListVIPsResponse{Vips: c.vips}, nil
}

func (c *canned) GetVIP(_ context.Context, r *weirv1.GetVIPRequest) (*weirv1.GetVIPResponse, error) {
	for _, vip := range c.vips {
		if vip.GetName() == r.GetName() {
			return &weirv1.GetVIPResponse{Vip: vip}, nil
		}
	}
	return c.UnimplementedWeirServiceHandler.GetVIP(context.Background(), r)
}

func (c *canned) ListNodes(_ context.Context, r *weirv1.ListNodesRequest) (*weirv1.ListNodesResponse, error) {
	var all []*weirv1.Node
	for _, n := range c.status.GetNodes() {
		if r.GetRole() == "" || r.GetRole() == n.GetRole() {
			all = append(all, n)
		}
	}
	nodes, next := cannedPage(all, r.GetPageToken())
	return &weirv1.ListNodesResponse{Nodes: nodes, NextPageToken: next}, nil
}

// cannedPage is a page of two: who wants all has to read on.
func cannedPage(all []*weirv1.Node, token string) (page []*weirv1.Node, next string) {
	from, _ := strconv.Atoi(token)
	if from+2 < len(all) {
		return all[from : from+2], strconv.Itoa(from + 2)
	}
	return all[from:], ""
}

func (c *canned) GetNode(_ context.Context, r *weirv1.GetNodeRequest) (*weirv1.GetNodeResponse, error) {
	for _, n := range c.status.GetNodes() {
		if n.GetName() == r.GetName() {
			return &weirv1.GetNodeResponse{Node: n}, nil
		}
	}
	return c.UnimplementedWeirServiceHandler.GetNode(context.Background(), r)
}

func (c *canned) GetStatus(_ context.Context, r *weirv1.GetStatusRequest) (*weirv1.GetStatusResponse, error) {
	page := proto.CloneOf(c.status)
	page.Nodes, page.NextPageToken = cannedPage(page.GetNodes(), r.GetPageToken())
	page.HostBackends = slices.DeleteFunc(page.GetHostBackends(), func(h *weirv1.HostBackends) bool {
		return !slices.ContainsFunc(page.GetNodes(), func(n *weirv1.Node) bool { return n.GetName() == h.GetHost() })
	})
	return page, nil
}

func weight(n uint32) *uint32 { return &n }

// badNight is an installation with one of each trouble.
func badNight() *canned {
	return &canned{
		vips: []*weirv1.VIP{troubledVIP()},
		status: &weirv1.GetStatusResponse{
			Version: "v0.1.0", Generation: 42, Store: "embedded", Vips: 1, Endpoints: 2, Backends: 4, BackendsUnhealthy: 1,
			Nodes: append(troubledMuxes(), troubledHosts()...),
			HostBackends: []*weirv1.HostBackends{
				{Host: "host1", Total: 3, Serving: 3, Tunnels: []string{"10.3.1.11", "10.3.1.12", "10.3.1.13"}},
				{Host: "host2", Total: 2, Unhealthy: 1, Draining: 1, Tunnels: []string{"10.3.2.11", "10.3.2.12"}},
			},
			VipWarnings: []string{
				"vip shop, UDP 53: has no backends: the muxes drop what arrives",
				"vip shop: refused by mux3: weir describe mux mux3 says why",
				"vip shop, TCP 80: backend 10.3.2.11:8080 on host2 is unhealthy: GET /healthz: 503 Service Unavailable",
			},
			VipWarningsTotal: 3,
		},
	}
}

// silentNight is an installation whose BGP sessions are all up, and whose routers do not do what they should.
func silentNight() *canned {
	peer := func(bfd string, up time.Duration, keeps bool, ipv6 bool) *weirv1.BGPPeer {
		return &weirv1.BGPPeer{
			Address: "10.1.0.254", As: 65000, State: "established", Bfd: bfd, Since: before(up), Routes: 2, KeepsRoutes: keeps,
			Families: []*weirv1.BGPFamily{{Name: "ipv4", Negotiated: true, Routes: 2}, {Name: "ipv6", Negotiated: ipv6, Routes: 3}},
		}
	}
	mux := func(name string, connected bool, seen time.Duration, kept time.Duration, arrived time.Duration, p *weirv1.BGPPeer) *weirv1.Node {
		status := &weirv1.MuxStatus{
			XdpMode: "native", Interface: "eth0", Peers: []*weirv1.BGPPeer{p}, GracefulRestart: durationpb.New(kept),
		}
		if arrived > 0 {
			status.LastPacket = before(arrived)
		}
		return &weirv1.Node{Name: name, Role: "mux", Addresses: []string{"10.1.0.1"}, Version: "v0.1.0", Status: &weirv1.NodeStatus{
			Connected: connected, LastSeen: before(seen), Generation: 7, Mux: status,
		}}
	}
	const half, minute, hour = 30 * time.Second, time.Minute, time.Hour
	return &canned{status: &weirv1.GetStatusResponse{
		Manager: "m1", Version: "v0.1.0", Generation: 7, Store: "embedded", Nodes: []*weirv1.Node{
			mux("bfd", true, time.Second, half, time.Second, peer("down", 35*time.Second, true, true)),
			mux("bfd-young", true, time.Second, half, time.Second, peer("down", 3*time.Second, true, true)),
			mux("dead", false, 36*time.Second, half, 40*time.Second, peer("up", hour, true, true)),
			mux("dead-forgotten", false, 36*time.Second, half, 40*time.Second, peer("up", hour, false, true)),
			mux("dead-kept", false, 12*time.Second, half, 20*time.Second, peer("up", hour, true, true)),
			mux("family", true, time.Second, half, time.Second, peer("up", hour, true, false)),
			mux("forgets", true, time.Second, half, time.Second, peer("up", hour, false, true)),
			mux("idle", true, time.Second, half, 20*minute, peer("up", hour, true, true)),
			mux("idle-new-session", true, time.Second, half, 20*minute, peer("up", 10*minute, true, true)),
			mux("idle-young", true, time.Second, half, 10*minute, peer("up", hour, true, true)),
			mux("refused", true, time.Second, half, 0, peer("up", 20*minute, true, true)),
			mux("refused-young", true, time.Second, half, 0, peer("up", 10*minute, true, true)),
			mux("well", true, time.Second, half, time.Second, peer("up", hour, true, true)),
		},
	}}
}

// ApplyVIPs answers dry runs only, with one effect of each kind.
func (c *canned) ApplyVIPs(_ context.Context, r *weirv1.ApplyVIPsRequest) (*weirv1.ApplyVIPsResponse, error) {
	if !r.GetDryRun() {
		return c.UnimplementedWeirServiceHandler.ApplyVIPs(context.Background(), r)
	}
	key := func(port uint32) *weirv1.EndpointKey {
		return &weirv1.EndpointKey{Vip: "203.0.113.10", Protocol: "TCP", Port: port}
	}
	return &weirv1.ApplyVIPsResponse{Generation: 42, Vips: []*weirv1.AppliedVIP{
		{Name: "shop", Change: "updated", Effects: []*weirv1.EndpointEffect{
			{
				Endpoint: key(80), Change: "updated", BucketsMoved: 128, BucketsTotal: 512, BucketsWaiting: 17, Sessions: 81200,
				SessionsWithoutCookie: 41, SessionsChained: 11, TableBytesBefore: 1276, TableBytesAfter: 2300,
			},
			{Endpoint: key(0), Change: "created", BucketsTotal: 256, TableBytesAfter: 620},
			{Endpoint: key(443), Change: "removed", BucketsTotal: 256, Sessions: 12, TableBytesBefore: 620},
		}},
		{Name: "dns", Change: "unchanged"},
	}}, nil
}

// leavingNight is an installation with a VIP as which two workloads leave, and one that did.
func leavingNight() *canned {
	zero := uint32(8)
	return &canned{vips: []*weirv1.VIP{{
		Name: "crawler", Tenant: "acme", Address: "203.0.113.20",
		Snat: &weirv1.SNAT{
			Workloads: []*weirv1.SNATWorkload{{Address: "10.3.1.11", Host: "host1"}, {Address: "10.3.2.11", Host: "host2"}}, Preallocate: &zero,
			MaxPorts: 1024, RequestRate: 10, Reserved: []string{"1-1023"}, Except: []string{"10.0.0.0/8"},
			Filtering: "address-and-port-dependent", Exhausted: "reject", IdleTimeout: durationpb.New(2 * time.Minute),
		},
		Status: &weirv1.VIPStatus{
			Generation: 42, MuxesProgrammed: 1, MuxesTotal: 1,
			Snat: &weirv1.SNATStatus{Workloads: 2, PortsTotal: 64512, PortsHeld: 32, PortsQuarantined: 16},
		},
	}}}
}

// GetSNAT answers for leavingNight.
func (c *canned) GetSNAT(context.Context, *weirv1.GetSNATRequest) (*weirv1.GetSNATResponse, error) {
	return &weirv1.GetSNATResponse{
		Name: "crawler", Address: "203.0.113.20", Status: c.vips[0].GetStatus().GetSnat(),
		Workloads: []*weirv1.WorkloadPorts{
			{
				Address: "10.3.1.11", Host: "host1", Ranges: []uint32{625, 626, 750}, Reclaim: []uint32{750}, Quarantined: []uint32{627},
				Use: &weirv1.SNATUse{
					PortsInUse: 9, Flows: 812, Held: 2, Requests: 3, Exhausted: 1,
					Destinations: []*weirv1.SNATDestination{
						{Address: "198.51.100.7", Port: 443, Protocol: "TCP", Flows: 800}, {Address: "198.51.100.8", Protocol: "ICMP", Flows: 12},
					},
				},
			},
			{Address: "10.3.2.11", Host: "host2", Ranges: []uint32{129}},
			{Address: "10.3.3.11", Host: "host3", Quarantined: []uint32{130}, Removed: true},
		},
	}, nil
}

// ReclaimPorts answers with what it was asked.
func (c *canned) ReclaimPorts(_ context.Context, r *weirv1.ReclaimPortsRequest) (*weirv1.ReclaimPortsResponse, error) {
	return &weirv1.ReclaimPortsResponse{Reclaim: r.GetRanges(), Generation: 43}, nil
}

func troubledVIP() *weirv1.VIP {
	backend := func(host, address string, w, slot, buckets uint32, health, reason string) *weirv1.Backend {
		return &weirv1.Backend{
			Host: host, Address: address, Port: 8080, Weight: weight(w),
			Status: &weirv1.BackendStatus{Slot: slot, Health: health, Reason: reason, Buckets: buckets, BucketsTotal: 512},
		}
	}
	counted := func(b *weirv1.Backend, draining uint32, sessions, withoutCookie uint64) *weirv1.Backend {
		b.Status.BucketsDraining, b.Status.Sessions, b.Status.SessionsWithoutCookie = draining, sessions, withoutCookie
		return b
	}
	return &weirv1.VIP{
		Name: "shop", Tenant: "acme", Labels: map[string]string{"team": "web", "stage": "live"},
		Address: "203.0.113.10", ResourceVersion: 40,
		Endpoints: []*weirv1.Endpoint{
			{
				Protocol: "TCP", Port: 80,
				HealthCheck: &weirv1.HealthCheck{
					Check: &weirv1.HealthCheck_Http{Http: &weirv1.HTTPCheck{Path: "/healthz"}}, Interval: durationpb.New(2 * time.Second),
					Timeout: durationpb.New(time.Second), Rise: 2, Fall: 3,
				},
				Backends: []*weirv1.Backend{
					backend("host1", "10.3.1.11", 1, 1, 171, "healthy", ""),
					counted(backend("host1", "10.3.1.12", 2, 2, 341, "healthy", ""), 171, 812, 5),
					backend("host2", "10.3.2.11", 1, 3, 0, "unhealthy", "GET /healthz: 503 Service Unavailable"),
					backend("host2", "10.3.2.12", 0, 4, 0, "healthy", ""),
				},
			},
			{Protocol: "UDP", Port: 53, AllUnhealthy: "refuse"},
			{
				Protocol: "UDP", Affinity: "client", IdleTimeout: durationpb.New(30 * time.Second),
				Backends: []*weirv1.Backend{{Host: "host1", Address: "10.3.1.13", Weight: weight(1), Status: &weirv1.BackendStatus{
					Slot: 1, Health: "unchecked", Buckets: 256, BucketsTotal: 256,
				}}},
			},
		},
		Ping: "ignore", FlowLimit: 100000, Consistency: "flow-table",
		Status: &weirv1.VIPStatus{
			Generation: 42, MuxesProgrammed: 1, MuxesTotal: 3,
			Rejections: []string{"mux3: weir describe mux mux3 says why"},
		},
	}
}

func troubledMuxes() []*weirv1.Node {
	muxStatus := &weirv1.MuxStatus{
		XdpMode: "native", Interface: "eth0",
		Peers: []*weirv1.BGPPeer{
			{Address: "10.1.0.254", As: 65000, State: "established", Bfd: "up", Since: before(26 * time.Hour), Routes: 1},
			{Address: "fd00:1::fe", As: 65000, State: "active", Bfd: "down", Since: before(190 * time.Second), LastError: "connection refused"},
		},
		Verdicts: []*weirv1.NamedCounter{
			{Name: "pass_icmp", Packets: 4, Bytes: 392},
			{Name: "pass_fragment"},
			{Name: "forward_syn", Packets: 1200, Bytes: 88800},
			{Name: "forward_flow", Packets: 98800, Bytes: 9088800},
			{Name: "drop_no_next_hop", Packets: 7, Bytes: 518},
		},
		Endpoints: []*weirv1.EndpointCounter{{
			Endpoint: &weirv1.EndpointKey{Vip: "203.0.113.10", Protocol: "TCP", Port: 80}, Packets: 100000, Bytes: 9177600,
		}},
		Warnings: []string{"no route to 10.3.2.11"},
	}
	return []*weirv1.Node{
		{
			Name: "mux1", Role: "mux", Addresses: []string{"10.1.0.1", "fd00:1::1"}, Version: "v0.1.0",
			Status: &weirv1.NodeStatus{Connected: true, LastSeen: before(time.Second), Generation: 42, Mux: muxStatus},
		},
		{
			Name: "mux2", Role: "mux", Addresses: []string{"10.1.0.2"}, Version: "v0.1.0",
			Status: &weirv1.NodeStatus{LastSeen: before(192 * time.Second), Generation: 40},
		},
		{
			Name: "mux3", Role: "mux", Addresses: []string{"10.1.0.3"}, Version: "v0.1.0",
			Status: &weirv1.NodeStatus{
				Connected: true, LastSeen: before(2 * time.Second), Generation: 40,
				Rejection: &weirv1.Rejection{Generation: 42, Reason: "grow the table buckets: it holds 512, 1024 are needed"},
				Mux:       &weirv1.MuxStatus{XdpMode: "generic", Interface: "eth0"},
			},
		},
	}
}

func troubledHosts() []*weirv1.Node {
	return []*weirv1.Node{
		{
			Name: "host1", Role: "host", Addresses: []string{"10.3.1.1"}, Version: "v0.1.0",
			Status: &weirv1.NodeStatus{
				Connected: true, LastSeen: before(time.Second), Generation: 42,
				Host: &weirv1.HostStatus{Uplink: "eth0", Sessions: 812, Verdicts: []*weirv1.NamedCounter{
					{Name: "deliver_interface", Packets: 100000, Bytes: 9000000}, {Name: "reply_uplink", Packets: 99000, Bytes: 50000000},
				}},
			},
		},
		{
			Name: "host2", Role: "host", Addresses: []string{"10.3.2.1"}, Version: "v0.1.0",
			Status: &weirv1.NodeStatus{
				Connected: true, LastSeen: before(time.Second), Generation: 42,
				Host: &weirv1.HostStatus{Uplink: "eth0", Warnings: []string{"no interface leads to workload 10.3.2.12"}},
			},
		},
	}
}

// overlayNight is an installation with a VIP in two virtual networks.
func overlayNight() *canned {
	return &canned{vips: []*weirv1.VIP{{
		Name: "orders-db", Tenant: "platform", Address: "203.0.113.30",
		Attachments: []*weirv1.Attachment{{Network: "acme-prod", Address: "10.99.0.1", Mode: "bypass"}, {Network: "bolt", Address: "10.99.0.1", Mode: "bypass"}},
		Status: &weirv1.VIPStatus{Generation: 42, MuxesProgrammed: 1, MuxesTotal: 1, Networks: []*weirv1.NetworkTraffic{
			{
				Network: "acme-prod", Address: "10.99.0.1", Vip: "203.0.113.30", Handshakes: []uint64{0, 2, 96, 0, 0, 0, 2},
				Backends: []*weirv1.NetworkBackendTraffic{{
					Backend: "10.3.3.11:5432", Port: 5432, Protocol: "TCP", Host: "host3", Open: 41, Opened: 120, Confirmed: 100, Refused: 3, Resets: 5,
					Cleaned: 7, PacketsIn: 90210, PacketsOut: 80120,
				}},
			},
			{Network: "bolt", Address: "10.99.0.1", Vip: "203.0.113.30"},
		}},
	}}}
}

// ListConnections answers for overlayNight, in two pages.
func (c *canned) ListConnections(_ context.Context, r *weirv1.ListConnectionsRequest) (*weirv1.ListConnectionsResponse, error) {
	if r.GetPageToken() == "" {
		return &weirv1.ListConnectionsResponse{NextPageToken: "second", Connections: []*weirv1.Connection{{
			Protocol: "TCP", Network: "acme-prod", Client: "192.168.0.5:40000", Vip: "10.99.0.1:5432", Local: "100.64.0.7:40000", Host: "host3",
			Backend: "10.3.3.11:5432", State: "open", Idle: durationpb.New(2500 * time.Millisecond),
		}}}, nil
	}
	return &weirv1.ListConnectionsResponse{
		Connections: []*weirv1.Connection{{
			Protocol: "TCP", Network: "bolt", Client: "192.168.0.5:40000", Vip: "10.99.0.1:5432", Local: "100.64.0.9:40000", Host: "host3",
			State: "half-open", Idle: durationpb.New(0),
		}},
		Unanswered: []*weirv1.UnansweredHost{{Host: "host4", Reason: "host host4 is not connected"}},
	}, nil
}
