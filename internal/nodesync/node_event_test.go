package nodesync

import (
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/testkit/teststore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorded are the events that a service records.
type recorded []eventlog.Event

func (r *recorded) Record(e eventlog.Event) { *r = append(*r, e) }

// newService returns a service with a store that has the VIP shop of tenant acme, with a backend on host1.
func newService(t *testing.T) (*Service, *recorded) {
	t.Helper()
	s := teststore.Open(t)
	shop := model.VIP{
		Name: "shop", Tenant: "acme", Address: netip.MustParseAddr("203.0.113.10"),
		Endpoints: []model.Endpoint{{
			Protocol: model.TCP, Port: 80,
			Backends: []model.Backend{{Address: netip.MustParseAddr("10.3.1.11"), Port: 8080, Host: "host1", Weight: 1}},
		}},
	}
	host := model.Node{Name: "host1", Role: model.RoleHost, Addresses: []netip.Addr{netip.MustParseAddr("10.2.1.1")}}
	if _, err := s.Update(t.Context(), func(*store.State) (store.Change, error) {
		return store.Change{VIPs: []model.VIP{shop}, Nodes: []model.Node{host}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	events := &recorded{}
	return New(Config{Store: s, Events: events, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, NewMetrics()), events
}

// dropped is how many events of nodes of a role were dropped.
func dropped(t *testing.T, n *Service, role model.Role) float64 {
	t.Helper()
	var m dto.Metric
	if err := n.metrics.dropped.WithLabelValues(string(role)).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// What a mux did by itself is an event of the VIP, in the mux's words; what is of no VIP, or of an unknown reason, is counted.
func TestEventsOfMuxes(t *testing.T) {
	n, got := newService(t)
	web := &weirv1.EndpointKey{Vip: "203.0.113.10", Protocol: "TCP", Port: 80}
	n.recordMuxEvents("mux1", []*weirv1.MuxEvent{
		{Endpoint: web, Reason: "Deleted", Message: "of a reason of managers"},
		{Endpoint: web, Reason: reason.SessionQuotaOn, Message: "of a reason of hosts"},
		{Endpoint: &weirv1.EndpointKey{Vip: "203.0.113.99", Protocol: "TCP", Port: 80}, Reason: reason.SYNCookiesOn},
		{Endpoint: web, Reason: reason.SYNCookiesOn, Message: "SYN cookies on: 120000 SYN/s", Warning: true},
		{Vip: "nonsense", Reason: reason.ShareOn},
		{Vip: "203.0.113.99", Reason: reason.ShareOn},
		{Vip: "203.0.113.10", Reason: reason.ShareOff, Message: "within its share again"},
		{Vip: "203.0.113.10", Reason: reason.ShareOn, Message: "x" + strings.Repeat("ü", events.MaxMessage)}, // the last that fits is cut in two
	})
	want := []eventlog.Event{
		{Warning: true, Reason: reason.SYNCookiesOn, Message: "TCP 203.0.113.10:80: SYN cookies on: 120000 SYN/s"},
		{Reason: reason.ShareOff, Message: "203.0.113.10: within its share again"},
		{Reason: reason.ShareOn, Message: "203.0.113.10: x" + strings.Repeat("ü", events.MaxMessage/2-1)},
	}
	if len(*got) != len(want) || dropped(t, n, model.RoleMux) != 5 {
		t.Fatalf("recorded %v, dropped %v", *got, dropped(t, n, model.RoleMux))
	}
	for i, e := range want {
		e.Kind, e.Object, e.Tenant, e.Source = events.KindVIP, "shop", "acme", "mux1"
		if !reflect.DeepEqual((*got)[i], e) {
			t.Errorf("%d: recorded %v, want %v", i, (*got)[i], e)
		}
	}
}

// A host has no words of its own, and none about VIPs that are not on it.
func TestEventsOfHosts(t *testing.T) {
	n, got := newService(t)
	on := &weirv1.MuxEvent{Vip: "203.0.113.10", Reason: reason.SessionQuotaOn, Message: "call me", Used: 7, Limit: 8}
	n.recordHostEvents("host2", []*weirv1.MuxEvent{on})
	n.recordHostEvents("host1", []*weirv1.MuxEvent{on, {Vip: "203.0.113.10", Reason: reason.ShareOn, Message: "of a reason of muxes"}})
	if len(*got) != 1 || dropped(t, n, model.RoleHost) != 2 {
		t.Fatalf("recorded %v, dropped %v", *got, dropped(t, n, model.RoleHost))
	}
	if e := (*got)[0]; e.Message != "203.0.113.10: has 7 of at most 8 sessions: more make way for each other" || !e.Warning || e.Source != "host1" {
		t.Errorf("recorded %v", e)
	}
}

// Of one report few events are taken.
func TestEventsOfOneReportAreBounded(t *testing.T) {
	n, got := newService(t)
	many := make([]*weirv1.MuxEvent, maxNodeEvents+3)
	for i := range many {
		many[i] = &weirv1.MuxEvent{Vip: "203.0.113.10", Reason: reason.ShareOn}
	}
	if n.recordMuxEvents("mux1", many); len(*got) != maxNodeEvents || dropped(t, n, model.RoleMux) != 3 {
		t.Errorf("recorded %d, dropped %v", len(*got), dropped(t, n, model.RoleMux))
	}
}
