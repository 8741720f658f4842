package backlog

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/controller/reported"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	facts "github.com/weirlb/weir/internal/model/backlog"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// town is a State with VIPs on two hosts, what these report, and what muxes are told.
type town struct {
	*Watch

	t        *testing.T
	s        *store.State
	now      time.Time
	reports  map[string][]*weirv1.BackendBacklog
	messages int
	told     []*weirv1.EndpointBacklog
	refused  gauge
}

// gauge is what was set last.
type gauge float64

func (g *gauge) Set(to float64) { *g = gauge(to) }

func vipOf(name, address, host, backend string, change ...func(*model.Endpoint)) model.VIP {
	e := model.Endpoint{
		Protocol: model.TCP, Port: 80, HealthCheck: &model.HealthCheck{},
		Backends: []model.Backend{{Address: netip.MustParseAddr(backend), Port: 8080, Host: host, Weight: 1}},
	}
	for _, c := range change {
		c(&e)
	}
	return model.VIP{Name: name, Tenant: "of-" + name, Address: netip.MustParseAddr(address), Endpoints: []model.Endpoint{e}}
}

func newTown(t *testing.T) *town {
	town := &town{t: t, s: &store.State{}, now: time.Unix(1_700_000_000, 0), reports: map[string][]*weirv1.BackendBacklog{}}
	c := &Controller{
		Reports: &reported.Source{
			Newest: func(node string, _ nodestatus.Status) (time.Time, *weirv1.NodeStatus, bool) {
				said, here := town.reports[node]
				return town.now, &weirv1.NodeStatus{Host: &weirv1.HostStatus{Backlogs: said}}, here
			},
			Stale: 20 * time.Second, Log: slog.New(slog.DiscardHandler),
		},
		Publish: func(all []*weirv1.EndpointBacklog) { town.messages, town.told = town.messages+1, all },
		Refused: &town.refused, Log: slog.New(slog.DiscardHandler),
	}
	town.Watch = c.Watch()
	town.s.PutVIP(vipOf("shop", "203.0.113.10", "host1", "10.3.1.11"))
	town.s.PutVIP(vipOf("bank", "203.0.113.11", "host2", "10.3.2.11"))
	for _, host := range []string{"host1", "host2"} {
		town.s.PutNode(model.Node{Name: host, Role: model.RoleHost})
		town.s.Streams.Set(host, true)
	}
	return town
}

func full(vip, tunnel string) *weirv1.BackendBacklog {
	return &weirv1.BackendBacklog{
		Endpoint: &weirv1.EndpointKey{Vip: vip, Protocol: "TCP", Port: 80}, Tunnel: tunnel, Cause: "accept-queue", Waiting: 129, Limit: 128,
	}
}

var (
	shop = full("203.0.113.10", "10.3.1.11")
	bank = full("203.0.113.11", "10.3.2.11")
)

// passes lets seconds pass, and says which VIPs' SYNs are answered then.
func (town *town) passes(seconds int) string {
	for range seconds {
		town.now = town.now.Add(time.Second)
		town.Step(town.s, town.now)
	}
	var all []string
	for _, b := range town.told {
		all = append(all, b.GetEndpoint().GetVip())
	}
	return strings.Join(all, " ")
}

func (town *town) expect(what string, seconds int, want string) {
	town.t.Helper()
	if got := town.passes(seconds); got != want {
		town.t.Errorf("%s: SYNs of %q are answered, want %q", what, got, want)
	}
}

// Cookies stay on for a while after the last report, are told again meanwhile, and in the manager's words.
func TestCookiesStayOnForAWhile(t *testing.T) {
	town := newTown(t)
	town.expect("calm", 5, "")
	if town.messages != 0 {
		t.Errorf("muxes were told %d times of nothing", town.messages)
	}
	town.reports["host1"] = []*weirv1.BackendBacklog{shop}
	town.expect("a full backlog", 1, "203.0.113.10")
	const want = "129 connections wait to be accepted by backend 10.3.1.11:8080 on host1, whose backlog is 128"
	if got := town.told[0].Evidence; got != want {
		t.Errorf("evidence is %q, want %q", got, want)
	}
	town.expect("for long", 39, "203.0.113.10")
	if town.messages != 2 {
		t.Errorf("muxes were told %d times in 40 s, want 2: they forget within a minute", town.messages)
	}
	town.reports["host1"] = nil
	town.expect("over", 14, "203.0.113.10")
	town.expect("for longer", 1, "")
	town.reports["host1"] = []*weirv1.BackendBacklog{{Endpoint: shop.Endpoint, Tunnel: shop.Tunnel, Cause: "unanswered-syns", Waiting: 40}}
	town.expect("again", 1, "203.0.113.10")
	if got := town.told[0].Evidence; got != "backend 10.3.1.11:8080 on host1 left 40 SYNs without an answer" {
		t.Errorf("evidence is %q", got)
	}
	town.s.Streams.Set("host1", false)
	town.expect("the host is lost", 15, "")
}

// A host that reports backends of others, none, or nonsense changes nothing.
func TestHostileReportsOfBacklogs(t *testing.T) {
	port := full("203.0.113.10", "10.3.1.11")
	port.Endpoint.Port = 81
	udp := full("203.0.113.10", "10.3.1.11")
	udp.Endpoint.Protocol = "UDP"
	hostile := []*weirv1.BackendBacklog{bank, full("203.0.113.11", "10.3.1.11"), full("203.0.113.10", "10.3.2.11"), full("203.0.113.99", "10.3.1.11"), full("", ""), {}, port, udp}
	town := newTown(t)
	town.reports["host1"] = hostile
	town.expect("hostile reports", 3, "")
	if int(town.refused) != len(hostile) || town.messages != 0 {
		t.Errorf("%v are refused of %d, and muxes are told %d times", town.refused, len(hostile), town.messages)
	}
	town.reports["host1"] = append(hostile, shop)
	town.expect("its own beside them", 1, "203.0.113.10")
	for range 3 * facts.MaxReported {
		town.reports["host2"] = append(town.reports["host2"], shop)
	}
	town.reports["host2"] = append(town.reports["host2"], bank)
	town.expect("one behind too many", 1, "203.0.113.10")
	town.reports = map[string][]*weirv1.BackendBacklog{"mux1": {bank}}
	town.s.PutNode(model.Node{Name: "mux1", Role: model.RoleMux})
	town.s.Streams.Set("mux1", true)
	town.expect("a mux", 16, "")
}

// A backend that does not work any more is its health check's to tell: it keeps cookies on for a bounded time.
func TestADeadBackendKeepsNoCookiesOn(t *testing.T) {
	town := newTown(t)
	town.reports["host1"] = []*weirv1.BackendBacklog{shop}
	on := 0
	for range 3600 {
		if town.passes(1) != "" {
			on++
		}
	}
	if bound := int((maxEpisode + holdTime) / time.Second); on < 250 || on > bound {
		t.Errorf("cookies are on for %d s of an hour, want %d at most", on, bound)
	}
	town.reports["host1"] = nil
	town.passes(30)
	town.reports["host1"] = []*weirv1.BackendBacklog{shop}
	town.expect("after a short silence", 5, "")
	town.reports["host1"] = nil
	town.passes(61)
	town.reports["host1"] = []*weirv1.BackendBacklog{shop}
	town.expect("after a pause", 5, "203.0.113.10")
}

// Backends that get no new connections, and endpoints that leave nothing to muxes, are none of it.
func TestWhichBackendsCount(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*town)
		want   string
	}{
		"healthy":   {func(town *town) { town.health(model.HealthHealthy) }, "203.0.113.10"},
		"unknown":   {func(*town) {}, "203.0.113.10"},
		"unchecked": {func(town *town) { town.put(func(e *model.Endpoint) { e.HealthCheck = nil }) }, "203.0.113.10"},
		"unhealthy": {func(town *town) { town.health(model.HealthUnhealthy) }, ""},
		"draining":  {func(town *town) { town.put(func(e *model.Endpoint) { e.Backends[0].Weight = 0 }) }, ""},
		"never":     {func(town *town) { town.put(func(e *model.Endpoint) { e.SYNCookies = model.SYNCookiesNever }) }, ""},
		"always":    {func(town *town) { town.put(func(e *model.Endpoint) { e.SYNCookies = model.SYNCookiesAlways }) }, ""},
		"auto":      {func(town *town) { town.put(func(e *model.Endpoint) { e.SYNCookies = model.SYNCookiesAuto }) }, "203.0.113.10"},
		"a tunnel": {func(town *town) {
			town.put(func(e *model.Endpoint) { e.Backends[0].Tunnel = netip.MustParseAddr("10.2.1.1") })
		}, ""},
	} {
		town := newTown(t)
		c.change(town)
		town.reports["host1"] = []*weirv1.BackendBacklog{shop}
		town.expect(what, 2, c.want)
	}
}

func (town *town) put(change func(*model.Endpoint)) {
	town.s.PutVIP(vipOf("shop", "203.0.113.10", "host1", "10.3.1.11", change))
}

func (town *town) health(h model.Health) {
	vip := town.s.VIPs.At("shop")
	key := desired.HealthKey{Endpoint: desired.Key(vip, vip.Endpoints[0]), Backend: vip.Endpoints[0].Backends[0].AddrPort()}
	town.s.Health.Set("host1", desired.HostHealth{key: {Endpoint: key.Endpoint, Backend: key.Backend, Health: h}})
}

// What hosts report to other managers comes by the store, while it is new.
func TestReportsToOtherManagers(t *testing.T) {
	town := newTown(t)
	detail, err := protojson.Marshal(&weirv1.NodeStatus{Host: &weirv1.HostStatus{Uplink: "eth0", Backlogs: []*weirv1.BackendBacklog{shop}}})
	if err != nil {
		t.Fatal(err)
	}
	town.s.Status.Set("host1", nodestatus.Status{Seen: town.now, Detail: detail})
	town.s.Status.Set("host2", nodestatus.Status{Seen: town.now, Detail: []byte(`{"host":{"uplink":"eth0"}}`)})
	town.expect("by the store", 20, "203.0.113.10")
	town.expect("an old one", 15, "")
}

// However many backends are full, muxes are told of a bounded number, and those that began first stay.
func TestWhatMuxesAreToldIsBounded(t *testing.T) {
	town := newTown(t)
	for i := range maxEndpoints + 100 {
		host := fmt.Sprintf("host%d", 100+i/facts.MaxReported)
		vip := vipOf(fmt.Sprintf("vip%d", i), fmt.Sprintf("198.51.%d.%d", 100+i/200, i%200+1), host, fmt.Sprintf("10.4.%d.%d", i/200, i%200+1))
		town.s.PutVIP(vip)
		town.s.PutNode(model.Node{Name: host, Role: model.RoleHost})
		town.s.Streams.Set(host, true)
	}
	town.reports["host1"] = []*weirv1.BackendBacklog{shop}
	town.passes(1)
	for i := range maxEndpoints + 100 {
		host := fmt.Sprintf("host%d", 100+i/facts.MaxReported)
		town.reports[host] = append(town.reports[host], full(fmt.Sprintf("198.51.%d.%d", 100+i/200, i%200+1), fmt.Sprintf("10.4.%d.%d", i/200, i%200+1)))
	}
	if got := town.passes(2); len(town.told) != maxEndpoints || !strings.Contains(got, "203.0.113.10") {
		t.Errorf("muxes are told of %d, want %d, among them the first one", len(town.told), maxEndpoints)
	}
}
