package manager

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/snatalloc"
	"github.com/weirlb/weir/internal/store"
)

// answeredPorts is how many port requests a manager has answered itself.
func answeredPorts(t *testing.T, m *Manager) (n float64) {
	t.Helper()
	for _, outcome := range []string{"granted", "failed", rpc.PortsOutstanding, rpc.PortsRate, rpc.PortsLimit, rpc.PortsExhausted, rpc.PortsRestored} {
		var counted dto.Metric
		if err := m.allocator.Metrics.Requests.WithLabelValues(outcome).Write(&counted); err != nil {
			t.Fatal(err)
		}
		n += counted.GetCounter().GetValue()
	}
	return n
}

// A workload that has all that it may, and asks on, costs the leader nothing: the manager that its host speaks to
// refuses. What changes is heard of at once.
func TestTheFirstManagerRefuses(t *testing.T) {
	t.Parallel()
	var managers []*Manager
	replicas := startReplicas(t, 3, func(m *Manager) { managers = append(managers, m) })
	led := leaderOf(listManagers(t, dial(t, replicas.urls[0])))
	leader := slices.IndexFunc(managers, func(m *Manager) bool { return m.cfg.Name == led })
	if leader < 0 {
		t.Fatalf("the manager %q leads", led)
	}
	first := (leader + 1) % len(managers)
	host := startHost(t, replicas.urls[first], "host1", "10.2.1.2")
	startHost(t, replicas.urls[leader], "host2", "10.2.2.2")
	startMux(t, replicas.urls[leader], "mux1", "10.1.1.2")
	client := dial(t, replicas.urls[first])
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 3 })
	vip := crawler()
	vip.Snat.MaxPorts = 32
	apply(t, replicas.urls[leader], vip)
	eventually(t, "the host has what is preallocated", func() bool { return len(host.holds(firstSNATClient).Ranges) == 1 })
	asksThrough(t, managers[first])
	if given, err := allocate(t, client, "host1", firstSNATClient, 500); err != nil || len(given) != 4 {
		t.Fatalf("given %v, %v, with 8 ports before and 32 at most", given, err)
	}
	before := answeredPorts(t, managers[leader])
	const asked = 200
	for range asked {
		_, err := allocate(t, client, "host1", firstSNATClient, 1)
		reason, after, refused := rpc.PortsRefused(err)
		if !refused || reason != rpc.PortsLimit || after == 0 {
			t.Fatalf("beyond the limit: %v", err)
		}
	}
	// One in a while is the leader's, which tells operators.
	atLeader, atFirst := answeredPorts(t, managers[leader])-before, answeredPorts(t, managers[first])
	if atLeader < 1 || atLeader > asked/10 || atLeader+atFirst != asked {
		t.Errorf("of %d requests the leader has answered %v, and the first manager %v", asked, atLeader, atFirst)
	}
	eventually(t, "an event tells of the limit", func() bool {
		r, err := client.ListEvents(t.Context(), &weirv1.ListEventsRequest{Object: "crawler"})
		return err == nil && slices.ContainsFunc(r.GetEvents(), func(e *weirv1.Event) bool { return e.GetReason() == "PortLimitReached" })
	})
	vip.Snat.MaxPorts = 64
	apply(t, replicas.urls[first], vip)
	if given, err := allocate(t, client, "host1", firstSNATClient, 1); err != nil || len(given) == 0 {
		t.Errorf("given %v, %v, with 64 ports at most", given, err)
	}
}

// asksThrough asks for ports of the leader by another manager: the request has ended there when its answer is heard.
func asksThrough(t *testing.T, m *Manager) {
	t.Helper()
	handler, err := m.api.Handler()
	if err != nil {
		t.Fatal(err)
	}
	ask, err := proto.Marshal(&weirv1.AllocatePortsRequest{
		Name: "host2", Vip: secondSNATClient.VIP.String(), Address: secondSNATClient.Address.String(), Ports: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, weirv1connect.SyncServiceAllocatePortsProcedure, bytes.NewReader(ask))
	request.Header.Set("Content-Type", "application/proto")
	heard := &hearer{ResponseRecorder: httptest.NewRecorder(), queue: &m.allocator.Queue}
	handler.ServeHTTP(heard, request)
	if heard.Code != http.StatusOK || heard.open != 0 {
		t.Errorf("answered %d, %s, with %d requests under way", heard.Code, heard.Body, heard.open)
	}
}

// hearer notes how many port requests are under way when an answer begins.
type hearer struct {
	*httptest.ResponseRecorder
	queue *snatalloc.Queue
	open  int
}

func (h *hearer) WriteHeader(code int) {
	h.open = h.queue.Open()
	h.ResponseRecorder.WriteHeader(code)
}

// A port request that is one too many is refused before it is looked at, and hosts understand the answer. Others go on.
func TestPortRequestsThatAreTooManyAreToldToComeBack(t *testing.T) {
	var m *Manager
	url, _, _ := leaving(t, func(started *Manager) { m = started })
	client := dial(t, url)
	empty := fill(t, m)
	before := answeredPorts(t, m)
	for range 3 {
		_, err := allocate(t, client, "host1", firstSNATClient, 1)
		if reason, after, _ := rpc.PortsRefused(err); reason != rpc.PortsRate || after == 0 {
			t.Errorf("one too many: %v, to be made again in %s", err, after)
		}
	}
	if n := answeredPorts(t, m) - before; n != 3 {
		t.Errorf("3 requests are counted as %v", n)
	}
	apply(t, url, plain("other", "203.0.113.21"))
	empty()
	if given, err := allocate(t, client, "host1", firstSNATClient, 1); err != nil || len(given) == 0 {
		t.Errorf("when others have ended: given %v, %v", given, err)
	}
}

// fill takes all places of port requests, until empty is called.
func fill(t *testing.T, m *Manager) (empty func()) {
	t.Helper()
	var leave []func()
	for i := range m.allocator.MaxOpen(m.store.State()) {
		who := fmt.Sprint("tenant/", i)
		if !m.allocator.Queue.Acquire(t.Context(), who, false, nil) {
			t.Fatalf("there is no place %d", i)
		}
		leave = append(leave, func() { m.allocator.Queue.Release(who) })
	}
	return func() {
		for _, l := range leave {
			l()
		}
	}
}

// While users' changes are congested all managers together have few port requests under way.
func TestCongestionBoundsPortRequests(t *testing.T) {
	var m *Manager
	url, _ := start(t, Config{}, func(started *Manager) { m = started })
	const usual, congested = 128, 16
	most := m.allocator.MaxOpen
	eventually(t, "no congestion", func() bool { return most(m.store.State()) == usual })
	apply(t, url, plain("alone", "203.0.113.30"))
	if most(m.store.State()) != usual {
		t.Error("one change is congestion")
	}
	follows := &store.State{Leader: "another", Managers: map[string]store.Manager{"a": {}, "b": {}, "c": {}, "d": {}, "another": {}}}
	for want, s := range map[int]*store.State{congested: nil, congested / 5: follows} {
		round := 0
		eventually(t, "congestion", func() bool {
			round++
			one, two := plain("one", "203.0.113.31"), plain("two", "203.0.113.32")
			one.Labels = map[string]string{"round": fmt.Sprint(round)}
			two.Labels = one.Labels
			apply(t, url, one, two)
			return most(cmp.Or(s, m.store.State())) == want
		})
	}
	eventually(t, "no congestion any more", func() bool { return most(follows) == usual })
}

// plain is a VIP of one endpoint.
func plain(name, address string) *weirv1.VIP {
	return &weirv1.VIP{Name: name, Address: address, Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 80}}}
}
