package webui

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// markupPath is markup that a path, and the name of a service of gRPC, may be: without spaces.
const markupPath = `/<img/src=x/onerror="window.ran=1">`

// checked is a VIP whose endpoints have each type of check.
func checked() *weirv1.VIP {
	vip := &weirv1.VIP{Name: "red-checks", Tenant: "red", Address: "203.0.113.40"}
	for i, check := range []*weirv1.HealthCheck{
		{Check: &weirv1.HealthCheck_Http{Http: &weirv1.HTTPCheck{Path: "/alive"}}},
		{Check: &weirv1.HealthCheck_Https{Https: &weirv1.HTTPSCheck{Path: markupPath}}, Port: 8443},
		{Check: &weirv1.HealthCheck_Grpc{Grpc: &weirv1.GRPCCheck{Service: "shop.Cart"}}},
		{Check: &weirv1.HealthCheck_Udp{Udp: &weirv1.UDPCheck{}}},
		{Check: &weirv1.HealthCheck_Tcp{Tcp: &weirv1.TCPCheck{}}},
	} {
		vip.Endpoints = append(vip.Endpoints, &weirv1.Endpoint{
			Port: uint32(81 + i), Backends: []*weirv1.Backend{{Host: "host1", Address: "10.3.1.40"}}, HealthCheck: check,
		})
	}
	return vip
}

// placed is a VIP that is to be in a switch; its host does not steer it, for a reason that is markup.
func placed() *weirv1.VIP {
	return &weirv1.VIP{
		Name: "red-fast", Tenant: "red", Address: "203.0.113.41", Hardware: &weirv1.Hardware{Placement: "require", Switches: []string{"tor1"}},
		Endpoints: []*weirv1.Endpoint{{Port: 80, Backends: []*weirv1.Backend{{Host: "host1", Address: "10.3.1.41"}}}},
	}
}

// joinSwitch opens the stream of a switch, whose neighbours name themselves and their ports by markup. It refuses a VIP.
func joinSwitch(t *testing.T, admin *rpc.Client, url string) {
	t.Helper()
	tor := join(t, admin, url, "switch", trust.Switch, "tor1")
	entries, err := tor.SyncSwitch(t.Context(), &weirv1.SyncSwitchRequest{Name: "tor1", Addresses: []string{"10.1.0.1"}, Version: markup})
	if err != nil || !entries.Receive() {
		t.Fatalf("the stream of a switch: %v", err)
	}
	refused := []*weirv1.SwitchRefusal{{Vip: "203.0.113.41", Reason: markup}}
	report := &weirv1.ReportSwitchRequest{Name: "tor1", Refused: refused, Status: &weirv1.SwitchStatus{
		Driver: markup, Hosts: &weirv1.SwitchTable{Size: 1000, Used: 250}, Ecmp: &weirv1.SwitchTable{Size: 512, Used: 32}, Tunnels: &weirv1.SwitchTable{Size: 64, Used: 48},
		Programmed: 3, Announced: 2, Members: 64, Warnings: []string{markup}, Refused: refused,
		Peers: []*weirv1.BGPPeer{{Address: "10.1.0.254", As: 65000, State: "active", Bfd: "off", Since: timestamppb.New(time.Now()), LastError: markup}},
		Ports: []*weirv1.SwitchPort{
			{Name: "Ethernet0", Up: true, MbitPerS: 10000, Neighbour: "spine1", NeighbourPort: "Ethernet8", ReceivedBytesPerS: 1_000_000_000, SentBytesPerS: 25_000_000},
			{Name: markup, MbitPerS: 10000, Neighbour: markup, NeighbourPort: markup},
		},
	}}
	if _, err := tor.ReportSwitch(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	go func() { // it ends with the test
		for entries.Receive() {
			report.Generation = entries.Msg().GetGeneration()
			tor.ReportSwitch(t.Context(), report) // the test may have ended
		}
	}()
}

// The VNIs of networks.
const (
	redVNI   = 100
	blueVNI  = 200
	greenVNI = 300
)

var overlay = []*weirv1.Overlay{{Name: "default", Addresses: []string{"192.0.2.250"}}}

// networks are one of each tenant: red and green have VIPs in each other's.
func networks() []*weirv1.VirtualNetwork {
	return []*weirv1.VirtualNetwork{
		{Name: "red-net", Tenant: "red", Vni: redVNI, Prefixes: []string{"192.168.0.0/16"}, AllowedTenants: []string{"green"}, Labels: map[string]string{"note": markup}},
		{Name: "blue-net", Tenant: "blue", Vni: blueVNI, Prefixes: []string{"192.168.0.0/16"}},
		{Name: "green-net", Tenant: "green", Vni: greenVNI, Prefixes: []string{"192.168.0.0/16"}, AllowedTenants: []string{"red"}},
	}
}

// attached are VIPs in these networks.
func attached() []*weirv1.VIP {
	in := func(name, tenant, end string, networks ...string) *weirv1.VIP {
		vip := &weirv1.VIP{Name: name, Tenant: tenant, Address: "203.0.113." + end, Endpoints: []*weirv1.Endpoint{
			{Port: 80, Backends: []*weirv1.Backend{{Host: "host1", Address: "10.3.1." + end}}},
		}}
		for _, network := range networks {
			vip.Attachments = append(vip.Attachments, &weirv1.Attachment{Network: network, Address: "10.99.0." + end})
		}
		return vip
	}
	return []*weirv1.VIP{in("red-dock", "red", "13", "red-net", "green-net"), in("blue-dock", "blue", "23", "blue-net"), in("green-dock", "green", "33", "red-net")}
}

// bypassed is what the host has counted of clients of networks, past the muxes.
func bypassed() []*weirv1.NetworkTraffic {
	of := func(network, end string, open uint64, more ...*weirv1.NetworkBackendTraffic) *weirv1.NetworkTraffic {
		return &weirv1.NetworkTraffic{
			Network: network, Address: "10.99.0." + end, Vip: "203.0.113." + end, Handshakes: []uint64{0, 3, 1}, HandshakeTime: durationpb.New(6 * time.Millisecond),
			Backends: append(more, &weirv1.NetworkBackendTraffic{
				Backend: "10.3.1." + end + ":80", Protocol: "TCP", Port: 80, PacketsIn: 1111, PacketsOut: 2222, Open: open, Opened: 70, Confirmed: 65, Refused: 5, Resets: 6,
			}),
		}
	}
	return []*weirv1.NetworkTraffic{
		of("red-net", "13", 17, &weirv1.NetworkBackendTraffic{Backend: markup, Protocol: markup, Open: 3}), of("green-net", "13", 19), of("blue-net", "23", 23), of("red-net", "33", 29),
	}
}

// listConnections has a host answer what connections of a network's clients it has: one, and one whose texts are markup.
func listConnections(ctx context.Context, host *rpc.Client, tasks []*weirv1.NodeTask) {
	for _, task := range tasks {
		asked := task.GetConnections()
		if asked == nil {
			continue
		}
		network := map[uint32]string{redVNI: "red-net", blueVNI: "blue-net", greenVNI: "green-net"}[asked.GetVni()]
		host.AnswerTask(ctx, &weirv1.AnswerTaskRequest{Name: "host1", Id: task.GetId(), Done: true, Connections: []*weirv1.Connection{ // who asked may be gone
			{Network: network, Client: "192.168.0.5:40001", Vip: "10.99.0.13:80", Local: "100.64.0.7:40001", Backend: "10.3.1.13:80", State: "open", Idle: durationpb.New(7 * time.Second), Protocol: "TCP"},
			{Network: network, Client: markup, Vip: markup, Local: markup, Backend: markup, State: markup, Protocol: markup},
		}})
	}
}
