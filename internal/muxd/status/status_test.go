package status

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/model"
)

func TestStatusTellsWhatTheFlowTableHolds(t *testing.T) {
	vip := netip.MustParseAddr("203.0.113.10")
	settings := endpoint.Settings{Cookies: model.CookiesOn, IdleTimeout: time.Hour, FlowLimit: 100}
	backends := []mux.BackendStatus{
		{Slot: 1, Tunnel: netip.MustParseAddr("10.3.1.11"), Buckets: 32},
		{Slot: 2, Tunnel: netip.MustParseAddr("10.3.1.12"), Down: true},
	}
	flows := flow.Usage{Untrusted: 2, Trusted: 5}
	udp := settings
	udp.Cookies = model.CookiesOff
	status := newStatus(&mux.Status{
		Interface: "eth0", Mode: mux.Native, Generation: 7, Settings: pool.Settings{MTU: 1500, Encapsulation: pool.GUE},
		Endpoints: []mux.EndpointStatus{
			{
				Key: model.EndpointKey{VIP: vip, Port: 80, Protocol: model.TCP}, Buckets: 32, Moving: 3, Settings: settings,
				Flows: flows, Backends: backends,
			},
			{Key: model.EndpointKey{VIP: vip, Port: 53, Protocol: model.UDP}, Buckets: 32, Settings: udp, Flows: flows},
		},
	})
	var table strings.Builder
	if err := status.Table(&table); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(table.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"generation 7",
		"interface eth0, XDP native, MTU 1500",
		"encapsulation gue",
		"",
		"VIP FLOWS SEEN ONCE LIMIT",
		"203.0.113.10 7 2 100",
		"",
		"ENDPOINT PACKETS BYTES SLOT TUNNEL BUCKETS STATE NEXT HOP",
		"TCP 203.0.113.10:80 0 0 32 cookies on, 3 move",
		"1 10.3.1.11 32 up unresolved",
		"2 10.3.1.12 0 down unresolved",
		"UDP 203.0.113.10:53 0 0 32 cookies off",
	}
	if diff := cmp.Diff(want, got[:min(len(want), len(got))]); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestStatusTellsOfVirtualNetworks(t *testing.T) {
	live := &mux.Status{Overlay: overlay.Status{
		Addresses: []netip.Addr{netip.MustParseAddr("10.255.0.1")},
		Attachments: []overlay.AttachmentStatus{{
			Attachment: overlay.Attachment{VNI: 100, VIP: netip.MustParseAddr("10.99.0.1"), Service: netip.MustParseAddr("203.0.113.10")},
			Counter:    model.Counter{Packets: 3, Bytes: 330},
		}},
	}}
	var table strings.Builder
	if err := newStatus(live).Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"vxlan to 10.255.0.1", "VNI ADDRESS PACKETS BYTES VIP", "100 10.99.0.1 3 330 203.0.113.10"} {
		if !strings.Contains(strings.Join(strings.Fields(table.String()), " "), line) {
			t.Errorf("%q is missing:\n%s", line, table.String())
		}
	}
	if without := newStatus(&mux.Status{}); without.Overlay != nil {
		t.Errorf("a mux without networks tells of %+v", without.Overlay)
	}
}
