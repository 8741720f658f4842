package manager

import (
	"slices"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/events"
)

// What a mux did by itself is an event of the VIP; what is of none, or of no known kind, is not.
func TestMuxesTellEvents(t *testing.T) {
	url, _ := start(t, Config{})
	client := dial(t, url)
	startHost(t, url, "host1", "10.2.1.1")
	startHost(t, url, "host2", "10.2.2.2")
	eventually(t, "two hosts", func() bool {
		nodes, err := client.ListNodes(t.Context(), &weirv1.ListNodesRequest{})
		return err == nil && len(nodes.Nodes) == 2
	})
	if _, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{shop()}}); err != nil {
		t.Fatal(err)
	}
	mux := startMux(t, url, "mux1", "10.1.1.2")
	web := &weirv1.EndpointKey{Vip: "203.0.113.10", Protocol: "TCP", Port: 80}
	report := &weirv1.ReportMuxRequest{Name: "mux1", Status: &weirv1.MuxStatus{}, Events: []*weirv1.MuxEvent{
		{Endpoint: web, Reason: "Deleted", Message: "of no known kind"},
		{Endpoint: &weirv1.EndpointKey{Vip: "203.0.113.99", Protocol: "TCP", Port: 80}, Reason: "SYNCookiesOn"},
		{Endpoint: web, Reason: "SYNCookiesOn", Message: "SYN cookies on: 120000 SYN/s", Warning: true},
		{Vip: "nonsense", Reason: "ShareOn"},
		{Vip: "203.0.113.99", Reason: "ShareOn"},
		{Vip: "203.0.113.10", Reason: "ShareOff", Message: "within its share again"},
		{Vip: "203.0.113.10", Reason: "ShareOn", Message: "x" + strings.Repeat("ü", events.MaxMessage)}, // the last that fits is cut in two
	}}
	eventually(t, "the report", func() bool {
		_, err := mux.client.ReportMux(t.Context(), report)
		return err == nil
	})
	var told []*weirv1.Event
	eventually(t, "the event", func() bool {
		list, err := client.ListEvents(t.Context(), &weirv1.ListEventsRequest{Kind: "VIP"})
		told = slices.DeleteFunc(list.GetEvents(), func(e *weirv1.Event) bool { return e.Source != "mux1" })
		return err == nil && slices.ContainsFunc(told, func(e *weirv1.Event) bool { return e.Reason == "SYNCookiesOn" }) &&
			slices.ContainsFunc(told, func(e *weirv1.Event) bool { return e.Reason == "ShareOff" }) &&
			slices.ContainsFunc(told, func(e *weirv1.Event) bool { return e.Reason == "ShareOn" })
	})
	for _, e := range told {
		if e.Reason == "Deleted" || e.Reason == "SYNCookiesOn" && (e.Object != "shop" || e.Tenant != "acme" || e.Severity != "warning" || e.Message != "TCP 203.0.113.10:80: SYN cookies on: 120000 SYN/s") ||
			e.Reason == "ShareOn" && e.Message != "203.0.113.10: x"+strings.Repeat("ü", events.MaxMessage/2-1) || e.Reason == "ShareOff" && (e.Object != "shop" || e.Severity == "warning" || e.Message != "203.0.113.10: within its share again") {
			t.Errorf("got %v", e)
		}
	}
}
