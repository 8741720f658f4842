package manager

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

func conditionText(vip *weirv1.VIP) string {
	text := ""
	for _, c := range vip.GetStatus().GetConditions() {
		text += fmt.Sprintf("%s=%s %s; ", c.Type, c.Status, c.Reason)
	}
	return text
}

// settled reads the VIP when its conditions are these and noted.
func settled(t *testing.T, client *rpc.Client, want string) *weirv1.VIP {
	t.Helper()
	var vip *weirv1.VIP
	eventually(t, "conditions "+want, func() bool {
		response, err := client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
		vip = response.GetVip()
		noted := func(c *weirv1.Condition) bool { return c.LastTransitionTime != nil }
		return err == nil && conditionText(vip) == want && !slices.ContainsFunc(vip.Status.Conditions, func(c *weirv1.Condition) bool { return !noted(c) })
	})
	return vip
}

func TestConditionsAndEvents(t *testing.T) {
	dir := t.TempDir()
	quick := func(m *Manager) { m.status.Interval = 10 * time.Millisecond }
	url, stop := start(t, Config{DataDir: dir}, quick)
	client := dial(t, url)
	host1, _ := startHost(t, url, "host1", "10.2.1.1"), startHost(t, url, "host2", "10.2.2.2")
	eventually(t, "two hosts", func() bool {
		nodes, err := client.ListNodes(t.Context(), &weirv1.ListNodesRequest{})
		return err == nil && len(nodes.Nodes) == 2
	})
	if _, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{shop()}}); err != nil {
		t.Fatal(err)
	}
	settled(t, client, "accepted=true Admitted; programmed=false NoMux; healthy=unknown NotCheckedYet; ")
	mux := startMux(t, url, "mux1", "10.1.1.2")
	settled(t, client, "accepted=true Admitted; programmed=true Programmed; healthy=unknown NotCheckedYet; ")
	health := func(address string, h model.Health, reason string) model.BackendHealth {
		return model.BackendHealth{
			Endpoint: model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80},
			Backend:  netip.MustParseAddrPort(address), Health: h, Reason: reason,
		}
	}
	if err := host1.report(health("10.3.1.11:8080", model.HealthHealthy, "")); err != nil {
		t.Fatal(err)
	}
	before := settled(t, client, "accepted=true Admitted; programmed=true Programmed; healthy=true SomeUnhealthy; ")
	if err := host1.report(health("10.3.1.11:8080", model.HealthUnhealthy, "connection refused")); err != nil {
		t.Fatal(err)
	}
	after := settled(t, client, "accepted=true Admitted; programmed=true Programmed; healthy=false NoHealthyBackend; ")
	if !after.Status.Conditions[2].LastTransitionTime.AsTime().After(before.Status.Conditions[2].LastTransitionTime.AsTime()) {
		t.Error("the time of the transition stands still")
	}
	mux.set("no room")
	if _, err := client.UpdateVIP(t.Context(), &weirv1.UpdateVIPRequest{Name: "shop", Vip: withPort(shop(), 81)}); err != nil {
		t.Fatal(err)
	}
	refused := settled(t, client, "accepted=true Admitted; programmed=false Rejected; healthy=unknown NotCheckedYet; ")
	if got := refused.Status.Conditions[1].Message; got != "0 of 1 connected muxes run it; refused by mux1: weir describe mux mux1 says why" {
		t.Errorf("the reason is %q", got)
	}
	seen := eventsOfShop(t, client)
	stop()
	url, _ = start(t, Config{DataDir: dir}, quick)
	client = dial(t, url)
	restarted, err := client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if got := restarted.Vip.Status.Conditions[0].LastTransitionTime.AsTime(); !got.Equal(refused.CreateTime.AsTime()) {
		t.Errorf("accepted since %s, created at %s", got, refused.CreateTime.AsTime())
	}
	if events, err := client.ListEvents(t.Context(), &weirv1.ListEventsRequest{Kind: "VIP"}); err != nil || len(events.Events) < len(seen) {
		t.Errorf("events after a restart: %v, %v", events, err)
	}
}

// eventsOfShop reads the events of the VIP when all that are expected are there, by reason.
func eventsOfShop(t *testing.T, client *rpc.Client) map[string]*weirv1.Event {
	t.Helper()
	var seen map[string]*weirv1.Event
	eventually(t, "events", func() bool {
		list, err := client.ListEvents(t.Context(), &weirv1.ListEventsRequest{Kind: "VIP", Object: "shop"})
		if err != nil {
			return false
		}
		seen = map[string]*weirv1.Event{}
		for _, e := range list.Events {
			seen[e.Reason] = e
		}
		return seen["Created"] != nil && seen["Updated"] != nil && seen["BackendUnhealthy"] != nil && seen["Rejected"] != nil && seen["Programmed"] != nil
	})
	if e := seen["BackendUnhealthy"]; e.Source != "host1" || e.Severity != "warning" || e.Tenant != "acme" || e.Message != "backend 10.3.1.11:8080 is unhealthy: connection refused" {
		t.Errorf("got %v", e)
	}
	return seen
}

func withPort(vip *weirv1.VIP, port uint32) *weirv1.VIP {
	vip.Endpoints[0].Port = port
	return vip
}

func TestEventsRepeat(t *testing.T) {
	url, _ := start(t, Config{})
	client := dial(t, url)
	for i := range 3 {
		vip := bare("a", fmt.Sprintf("203.0.113.%d", i+1))
		if _, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "one event that happened twice", func() bool {
		list, err := client.ListEvents(t.Context(), &weirv1.ListEventsRequest{Object: "a", Kind: "VIP"})
		i := slices.IndexFunc(list.GetEvents(), func(e *weirv1.Event) bool { return e.Reason == "Updated" })
		return err == nil && i >= 0 && list.Events[i].Count == 2 && list.Events[i].Message == "updated with address 203.0.113.3"
	})
	stream, err := client.WatchEvents(t.Context(), &weirv1.WatchEventsRequest{Object: "a", Kind: "VIP"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	reasons := map[string]bool{}
	for !reasons["Created"] || !reasons["Updated"] || !reasons["Deleted"] {
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		if m := stream.Msg(); m.Type == "event" {
			reasons[m.Event.Reason] = true
		} else if !reasons["Deleted"] {
			client.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "a"}) // a second time it is gone
		}
	}
}
