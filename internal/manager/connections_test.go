package manager

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
)

// answer does what an operator asks: the host has so many connections, in rows 10, 20, ...; explained it does with all frames.
func (h *fakeHost) answer(tasks []*weirv1.NodeTask) error {
	h.mu.Lock()
	connections, mute, endless, explanation := h.connections, h.mute, h.endless, h.explanation
	h.mu.Unlock()
	for _, task := range tasks {
		if token := task.GetFindToken(); token != nil && !mute {
			answer := &weirv1.AnswerTaskRequest{Name: h.name, Id: task.GetId(), Done: true, Holder: holders[token.GetToken()]}
			if _, err := h.client.AnswerTask(context.Background(), answer); err != nil {
				return err
			}
			continue
		}
		if task.GetExplain() != nil && !mute {
			answer := &weirv1.AnswerTaskRequest{Name: h.name, Id: task.GetId(), Done: true, Explanation: explanation}
			if _, err := h.client.AnswerTask(context.Background(), answer); err != nil {
				return err
			}
			continue
		}
		what := task.GetConnections()
		if what == nil || mute {
			continue
		}
		answer := &weirv1.AnswerTaskRequest{Name: h.name, Id: task.GetId(), Done: true}
		for row := uint32(10); row <= 10*connections; row += 10 {
			if row < what.GetRow() {
				continue
			}
			if uint32(len(answer.GetConnections())) == what.GetCount() {
				answer.NextRow = row
				break
			}
			answer.Connections = append(answer.Connections, &weirv1.Connection{
				Network: "bay", Client: fmt.Sprintf("192.168.0.5:%d", row), Vip: what.GetVip(), Host: "liar", State: "open", Idle: durationpb.New(time.Second),
			})
		}
		if endless {
			answer.Connections, answer.NextRow = nil, what.GetRow()+1
		}
		if what.GetVni() != 0 && what.GetVni() != 100 {
			answer.Error = "another network was asked for"
		}
		if _, err := h.client.AnswerTask(context.Background(), answer); err != nil {
			return err
		}
	}
	return nil
}

// connections reads pages of a size, and returns host and client's port of each connection.
func connections(t *testing.T, client *rpc.Client, r *weirv1.ListConnectionsRequest) (all, unanswered []string) {
	t.Helper()
	for range 20 {
		page, err := client.ListConnections(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if n := r.GetPageSize(); n > 0 && len(page.GetConnections()) > int(n) {
			t.Errorf("a page of %d has %d", n, len(page.GetConnections()))
		}
		for _, c := range page.GetConnections() {
			all = append(all, c.GetHost()+strings.TrimPrefix(c.GetClient(), "192.168.0.5"))
		}
		for _, u := range page.GetUnanswered() {
			unanswered = append(unanswered, u.GetHost()+": "+u.GetReason())
		}
		if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
			return all, unanswered
		}
	}
	t.Fatal("the list has no end")
	return nil, nil
}

// Connections come from the hosts of a VIP's backends in pages, whichever manager is asked and has their streams.
func TestConnectionsAreListed(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, 2)
	host1, host2 := startHost(t, r.urls[0], "host1", "10.2.1.2"), startHost(t, r.urls[1], "host2", "10.2.2.2")
	startMux(t, r.urls[0], "mux1", "10.1.1.2")
	client := dial(t, r.urls[0])
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 3 })
	vip := dock()
	vip.Endpoints[0].Backends = append(vip.Endpoints[0].Backends, &weirv1.Backend{Address: "10.3.2.11", Port: 8080, Host: "host2"})
	if _, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{
		Overlays: []*weirv1.Overlay{{Name: "default", Addresses: []string{"192.0.2.250"}}}, Networks: []*weirv1.VirtualNetwork{bay("host2")}, Vips: []*weirv1.VIP{vip},
	}); err != nil {
		t.Fatal(err)
	}
	for h, n := range map[*fakeHost]uint32{host1: 5, host2: 2} {
		h.mu.Lock()
		h.connections = n
		h.mu.Unlock()
	}
	const want = "host1:10 host1:20 host1:30 host1:40 host1:50 host2:10 host2:20"
	for _, url := range r.urls {
		client := dial(t, url)
		eventually(t, url+" knows the VIP, and the hosts have their streams", func() bool {
			page, err := client.ListConnections(t.Context(), &weirv1.ListConnectionsRequest{Vip: vip.GetName()})
			return err == nil && len(page.GetUnanswered()) == 0
		})
		for _, size := range []uint32{0, 2, 5} {
			all, unanswered := connections(t, client, &weirv1.ListConnectionsRequest{Vip: vip.GetName(), Network: "bay", PageSize: size})
			if got := strings.Join(all, " "); got != want || unanswered != nil {
				t.Errorf("%s, pages of %d: %s, unanswered %q", url, size, got, unanswered)
			}
		}
		if all, _ := connections(t, client, &weirv1.ListConnectionsRequest{Vip: vip.GetName(), Host: "host2"}); strings.Join(all, " ") != "host2:10 host2:20" {
			t.Errorf("of host2: %q", all)
		}
	}
	for _, c := range []struct {
		request *weirv1.ListConnectionsRequest
		want    string
	}{
		{&weirv1.ListConnectionsRequest{Vip: "none"}, `no VIP "none"`},
		{&weirv1.ListConnectionsRequest{Vip: vip.GetName(), Network: "lake"}, `is attached to no network "lake"`},
		{&weirv1.ListConnectionsRequest{Vip: vip.GetName(), Host: "mux1"}, `has no backend on a host "mux1"`},
		{&weirv1.ListConnectionsRequest{Vip: vip.GetName(), PageToken: "?"}, "pageToken"},
	} {
		if _, err := client.ListConnections(t.Context(), c.request); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.request, err, c.want)
		}
	}
	unansweredIsTold(t, r.urls, host2)
}

// unansweredIsTold says of a host whose list has no end, and of one that does not answer, that and why it is missing.
func unansweredIsTold(t *testing.T, urls []string, host2 *fakeHost) {
	t.Helper()
	for i, c := range []struct {
		endless, mute bool
		want          string
	}{{true, false, "host2 says no end of its list"}, {false, true, "host host2 does not answer"}} {
		host2.mu.Lock()
		host2.endless, host2.mute = c.endless, c.mute
		host2.mu.Unlock()
		all, unanswered := connections(t, dial(t, urls[i]), &weirv1.ListConnectionsRequest{Vip: dock().GetName()})
		if len(all) != 5 || len(unanswered) != 1 || !strings.Contains(unanswered[0], c.want) {
			t.Errorf("%q, unanswered %q, want %q", all, unanswered, c.want)
		}
	}
}

// What hosts count of bypassed traffic is shown of a VIP, the sums over its hosts.
func TestBypassedTrafficIsShown(t *testing.T) {
	url, _, host1, host2 := world(t, time.Hour)
	applyDock(t, url, bay("host2"))
	client := dial(t, url)
	var all []*weirv1.NetworkTraffic
	report := func() bool { // anew: the hosts report by themselves, too, and count nothing
		for i, h := range []*fakeHost{host1, host2} {
			_, err := h.client.ReportHost(t.Context(), &weirv1.ReportHostRequest{Name: h.name, Status: &weirv1.HostStatus{Networks: []*weirv1.NetworkTraffic{
				{
					Network: "bay", Address: "10.99.0.1", Vip: "203.0.113.10", Handshakes: []uint64{0, uint64(i + 1)}, HandshakeTime: durationpb.New(time.Millisecond),
					Backends: []*weirv1.NetworkBackendTraffic{{Backend: "10.3.1.11:8080", Port: 80, Protocol: "TCP", Opened: 3, PacketsIn: 7, Host: "liar"}},
				},
				{Network: "bay", Address: "10.99.0.1", Vip: "203.0.113.99", Handshakes: []uint64{9}}, // not of this VIP
			}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		got, err := client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: dock().GetName()})
		if err != nil {
			t.Fatal(err)
		}
		all = got.GetVip().GetStatus().GetNetworks()
		return len(all) == 1 && len(all[0].GetBackends()) == 1 && len(all[0].GetHandshakes()) == 2
	}
	eventually(t, "what hosts count is shown", report)
	// host2 has no backend of the VIP: what it says of it is nothing.
	if b := all[0].GetBackends()[0]; b.GetHost() != "host1" || b.GetOpened() != 3 ||
		all[0].GetHandshakes()[1] != 1 || all[0].GetHandshakeTime().AsDuration() != time.Millisecond {
		t.Errorf("bypassed %v", all)
	}
}
