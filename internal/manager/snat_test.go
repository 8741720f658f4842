package manager

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/wire"
)

// crawler is a VIP as which two workloads leave, on two hosts.
func crawler() *weirv1.VIP {
	return &weirv1.VIP{
		Name: "crawler", Tenant: "acme", Address: "203.0.113.20",
		Snat: &weirv1.SNAT{
			RequestRate: 1000,
			Workloads:   []*weirv1.SNATWorkload{{Address: "10.3.1.11", Host: "host1"}, {Address: "10.3.2.11", Host: "host2"}},
		},
	}
}

var (
	firstSNATClient  = model.SNATKey{VIP: netip.MustParseAddr("203.0.113.20"), Address: netip.MustParseAddr("10.3.1.11")}
	secondSNATClient = model.SNATKey{VIP: netip.MustParseAddr("203.0.113.20"), Address: netip.MustParseAddr("10.3.2.11")}
)

// leaving starts a manager with two hosts, a mux and crawler.
func leaving(t *testing.T, change ...func(*Manager)) (url string, mux *fakeMux, hosts [2]*fakeHost) {
	t.Helper()
	url, _ = start(t, Config{}, change...)
	hosts[0], hosts[1] = startHost(t, url, "host1", "10.2.1.2"), startHost(t, url, "host2", "10.2.2.2")
	mux = startMux(t, url, "mux1", "10.1.1.2")
	client := dial(t, url)
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 3 })
	apply(t, url, crawler())
	eventually(t, "the hosts have what is preallocated", func() bool {
		return len(hosts[0].holds(firstSNATClient).Ranges) == 1 && len(hosts[1].holds(secondSNATClient).Ranges) == 1
	})
	return url, mux, hosts
}

// allocate asks for ports, and returns all ranges that the workload has then.
func allocate(t *testing.T, client *rpc.Client, host string, key model.SNATKey, ports uint32) ([]model.Range, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := client.AllocatePorts(ctx, &weirv1.AllocatePortsRequest{
		Name: host, Vip: key.VIP.String(), Address: key.Address.String(), Ports: ports,
	})
	if err != nil {
		return nil, err
	}
	ranges, err := wire.RangesFromProto(r.GetAllocation().GetRanges())
	if err != nil || r.GetAllocation().GetWritten() == 0 {
		t.Errorf("answered %v: %v", r, err)
	}
	return ranges, nil
}

// A host that names the list that it has is answered what differs from it, at a grant and a release; one that names another,
// or none, the whole list.
func TestAnswersTellWhatDiffersFromTheHostsList(t *testing.T) {
	url, _, _ := leaving(t)
	client := dial(t, url)
	ask := func(has uint64) *weirv1.PortAllocation {
		r, err := client.AllocatePorts(t.Context(), &weirv1.AllocatePortsRequest{
			Name: "host1", Vip: firstSNATClient.VIP.String(), Address: firstSNATClient.Address.String(), Ports: 8, Has: has,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetAllocation()
	}
	read := func(what string, a *weirv1.PortAllocation, before snat.List, isDelta bool) snat.List {
		t.Helper()
		list, err := wire.PortAllocationFromProto(a, before)
		if err != nil || list.Written == 0 || (a.GetDelta() != nil) != isDelta {
			t.Fatalf("%s: answered %v, which is %v: %v", what, a, list, err)
		}
		return list
	}
	first := read("without a list", ask(0), snat.List{}, false)
	second := read("with its list", ask(first.Digest()), first, true)
	third := read("with one of before", ask(first.Digest()), snat.List{}, false)
	for _, r := range slices.Concat(first.Ranges, second.Ranges) {
		if !slices.Contains(second.Ranges, r) || !slices.Contains(third.Ranges, r) {
			t.Errorf("range %d is lost: %v, %v, %v", r, first, second, third)
		}
	}
	release := &weirv1.ReleasePortsRequest{
		Name: "host1", Vip: firstSNATClient.VIP.String(), Address: firstSNATClient.Address.String(),
		Ranges: wire.RangesToProto(third.Ranges[:1]), Has: third.Digest(),
	}
	released, err := client.ReleasePorts(t.Context(), release)
	if err != nil {
		t.Fatal(err)
	}
	fourth := read("at a release", released.GetAllocation(), third, true)
	if !slices.Equal(fourth.Ranges, third.Ranges[1:]) {
		t.Errorf("%v is left of %v", fourth, third)
	}
	again, err := client.ReleasePorts(t.Context(), release) // the answer was lost
	if err != nil {
		t.Fatal(err)
	}
	if fifth := read("at a release that was made", again.GetAllocation(), snat.List{}, false); !slices.Equal(fifth.Ranges, fourth.Ranges) {
		t.Errorf("%v is left of %v", fifth, fourth)
	}
}

func TestPortsAreKnownToMuxesBeforeTheyAreUsed(t *testing.T) {
	url, mux, hosts := leaving(t)
	client := dial(t, url)
	given, err := allocate(t, client, "host1", firstSNATClient, 20)
	if err != nil || len(given) != 4 {
		t.Fatalf("given %v, %v", given, err)
	}
	owners := mux.owners(firstSNATClient.VIP)
	for _, r := range given {
		if !slices.Equal(owners[r], []netip.Addr{firstSNATClient.Address}) {
			t.Errorf("range %d was answered, and the mux has it of %v", r, owners[r])
		}
	}
	eventually(t, "the host's stream has them", func() bool { return len(hosts[0].holds(firstSNATClient).Ranges) == 4 })

	mux.setMute(true)
	answered := make(chan error, 1)
	go func() {
		_, err := allocate(t, client, "host2", secondSNATClient, 8)
		answered <- err
	}()
	eventually(t, "the mux reads them", func() bool { return len(mux.owners(secondSNATClient.VIP)) > 5 })
	select {
	case err := <-answered:
		t.Errorf("answered (%v) before the mux had", err)
	default:
	}
	if n := len(hosts[1].holds(secondSNATClient).Ranges); n != 1 {
		t.Errorf("the host has %d ranges before the mux answered", n)
	}
	mux.setMute(false)
	eventually(t, "the mux has reported", mux.report)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	eventually(t, "the host has them", func() bool { return len(hosts[1].holds(secondSNATClient).Ranges) > 1 })
}

// runsOf is the generation that a mux runs, as a manager tells it.
func runsOf(t *testing.T, client *rpc.Client, mux string) uint64 {
	t.Helper()
	node, err := client.GetNode(t.Context(), &weirv1.GetNodeRequest{Name: mux})
	if err != nil {
		t.Fatal(err)
	}
	return node.GetNode().GetStatus().GetGeneration()
}

// What a mux acknowledges on a stream of its own counts as what it reports, and is known to the store soon; a manager
// that does not have the mux's stream says so, and a report that is late takes nothing back.
func TestMuxesAcknowledge(t *testing.T) {
	url, mux, _ := leaving(t)
	client := dial(t, url)
	acks := rpc.Acknowledger{Name: "mux1", Open: client.AcknowledgeMux}
	t.Cleanup(acks.Close)
	mux.mu.Lock()
	mux.mute = true
	before := uint64(mux.generation)
	mux.mu.Unlock()
	answered := make(chan error, 1)
	go func() {
		_, err := allocate(t, client, "host2", secondSNATClient, 8)
		answered <- err
	}()
	eventually(t, "the mux reads them", func() bool { return len(mux.owners(secondSNATClient.VIP)) > 2 })
	mux.mu.Lock()
	runs := uint64(mux.generation)
	mux.mu.Unlock()
	if err := acks.Send(t.Context(), runs-1, 0); err != nil {
		t.Fatal(err)
	}
	if len(answered) > 0 {
		t.Error("answered before the mux had")
	}
	if err := acks.Send(t.Context(), runs-1, runs); err != nil { // but for a prefix list
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if got := runsOf(t, client, "mux1"); got >= runs {
		t.Errorf("it runs %d, of which a list is not whole", got)
	}
	if err := acks.Send(t.Context(), runs, runs); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs all", func() bool { return runsOf(t, client, "mux1") == runs })
	late := &weirv1.ReportMuxRequest{Name: "mux1", Generation: before, Status: &weirv1.MuxStatus{XdpMode: "native", Interface: "eth0"}}
	if _, err := client.ReportMux(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if got := runsOf(t, client, "mux1"); got != runs {
		t.Errorf("it runs %d, want %d", got, runs)
	}
	elsewhere := rpc.Acknowledger{Name: "mux2", Open: client.AcknowledgeMux}
	t.Cleanup(elsewhere.Close)
	var err error
	eventually(t, "one that follows another manager is told", func() bool {
		err = elsewhere.Send(t.Context(), runs, 0)
		return err != nil
	})
	if !strings.Contains(err.Error(), "follows another manager") {
		t.Error(err)
	}
}

func TestPortsOfOtherHostsAreRefused(t *testing.T) {
	url, _, _ := leaving(t)
	client := dial(t, url)
	if _, err := allocate(t, client, "host2", firstSNATClient, 1); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("got %v", err)
	}
	given, err := allocate(t, client, "host1", firstSNATClient, 8)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.ReleasePorts(t.Context(), &weirv1.ReleasePortsRequest{
		Name: "host2", Vip: firstSNATClient.VIP.String(), Address: firstSNATClient.Address.String(), Ranges: wire.RangesToProto(given),
	})
	if connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a release by another host: got %v", err)
	}
	stranger := model.SNATKey{VIP: firstSNATClient.VIP, Address: netip.MustParseAddr("10.3.1.12")}
	if _, err := allocate(t, client, "host1", stranger, 1); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("got %v", err)
	}
}

func TestPortRequestsHaveLimits(t *testing.T) {
	url, _, _ := leaving(t)
	client := dial(t, url)
	vip := crawler()
	vip.Snat.MaxPorts, vip.Snat.RequestRate = 32, 5
	apply(t, url, vip)
	given, err := allocate(t, client, "host1", firstSNATClient, 500)
	if err != nil || len(given) != 4 {
		t.Fatalf("given %v, %v, with 8 ports before and 32 at most", given, err)
	}
	_, err = allocate(t, client, "host1", firstSNATClient, 1)
	if reason, after, refused := rpc.PortsRefused(err); !refused || reason != rpc.PortsLimit || after == 0 {
		t.Errorf("beyond the limit: %v", err)
	}
	reason := ""
	for range 20 {
		_, err = allocate(t, client, "host1", firstSNATClient, 1)
		if reason, _, _ = rpc.PortsRefused(err); reason == rpc.PortsRate {
			break
		}
	}
	if reason != rpc.PortsRate || connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("the last of many requests: %v", err)
	}
	eventually(t, "an event tells of the limit", func() bool {
		r, err := client.ListEvents(t.Context(), &weirv1.ListEventsRequest{Object: "crawler"})
		return err == nil && slices.ContainsFunc(r.GetEvents(), func(e *weirv1.Event) bool {
			return e.GetReason() == "PortLimitReached" && e.GetSeverity() == "warning"
		})
	})
}

// One request of a workload is answered at a time; those of many are answered together, and none gets what
// another one has.
func TestManyAskAtOnce(t *testing.T) {
	url, mux, _ := leaving(t)
	client := dial(t, url)
	var group sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for range 8 {
		for host, key := range map[string]model.SNATKey{"host1": firstSNATClient, "host2": secondSNATClient} {
			group.Go(func() {
				_, err := allocate(t, client, host, key, 1)
				reason, _, refused := rpc.PortsRefused(err)
				if err != nil && !refused {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				outcomes[reason]++
			})
		}
	}
	group.Wait()
	if outcomes[""] < 2 || outcomes[rpc.PortsOutstanding]+outcomes[""] != 16 {
		t.Errorf("ended as %v", outcomes)
	}
	for r, owners := range mux.owners(firstSNATClient.VIP) {
		if len(owners) != 1 {
			t.Errorf("range %d is of %v", r, owners)
		}
	}
}

func TestReleasedPortsAreQuarantined(t *testing.T) {
	url, mux, hosts := leaving(t, func(m *Manager) { m.allocator.Quarantine = 6 * time.Second })
	client := dial(t, url)
	preallocated := hosts[0].holds(firstSNATClient).Ranges
	given, err := allocate(t, client, "host1", firstSNATClient, 24)
	if err != nil {
		t.Fatal(err)
	}
	given = slices.DeleteFunc(given, func(r model.Range) bool { return slices.Contains(preallocated, r) })
	release := &weirv1.ReleasePortsRequest{
		Name: "host1", Vip: firstSNATClient.VIP.String(), Address: firstSNATClient.Address.String(), Ranges: wire.RangesToProto(given),
	}
	for range 2 { // it may be made again
		answer, err := client.ReleasePorts(t.Context(), release)
		if err != nil {
			t.Fatal(err)
		}
		if left := answer.GetAllocation(); !slices.Equal(left.GetRanges(), wire.RangesToProto(preallocated)) || left.GetWritten() == 0 {
			t.Errorf("left are %v, not %v", left, preallocated)
		}
	}
	eventually(t, "mux and host have them no more", func() bool {
		return len(mux.owners(firstSNATClient.VIP)) == 2 && len(hosts[0].holds(firstSNATClient).Ranges) == 1
	})
	snat := func() *weirv1.GetSNATResponse {
		r, err := client.GetSNAT(t.Context(), &weirv1.GetSNATRequest{Name: "crawler"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if w := snat().GetWorkloads()[0]; len(w.GetQuarantined()) == 0 {
		t.Errorf("nothing is in quarantine: %v", w)
	}
	eventually(t, "they are free", func() bool { return snat().GetStatus().GetPortsQuarantined() == 0 })
	if w := snat().GetWorkloads()[0]; len(w.GetRanges()) != 1 || w.GetHost() != "host1" || w.GetUse().GetFlows() != 7 ||
		w.GetUse().GetDestinations()[0].GetPort() != 443 {
		t.Errorf("the workload has %v", w)
	}
}

func TestReclaimedPortsAreToldToTheHost(t *testing.T) {
	url, _, hosts := leaving(t)
	client := dial(t, url)
	if _, err := allocate(t, client, "host1", firstSNATClient, 24); err != nil {
		t.Fatal(err)
	}
	r, err := client.ReclaimPorts(t.Context(), &weirv1.ReclaimPortsRequest{Name: "crawler", Address: "10.3.1.11"})
	if err != nil || len(r.GetReclaim()) != 4 {
		t.Fatalf("%v, %v", r, err)
	}
	eventually(t, "the host is told", func() bool { return len(hosts[0].holds(firstSNATClient).Reclaim) == 4 })
	if _, err := client.ReclaimPorts(t.Context(), &weirv1.ReclaimPortsRequest{Name: "crawler", Address: "10.3.1.11", Cancel: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is off", func() bool { return len(hosts[0].holds(firstSNATClient).Reclaim) == 0 })

	vip := crawler()
	vip.Snat.MaxPorts = 16
	apply(t, url, vip)
	eventually(t, "a lower limit reclaims what is above it", func() bool { return len(hosts[0].holds(firstSNATClient).Reclaim) == 2 })
}

// An endpoint can't be on a port that a workload leaves with; one that is there is given to nobody.
func TestEndpointsAndPortsKeepApart(t *testing.T) {
	url, mux, _ := leaving(t)
	client := dial(t, url)
	owners := mux.owners(firstSNATClient.VIP)
	var taken model.Range
	for r := range owners {
		taken = r
	}
	vip := crawler()
	vip.Endpoints = []*weirv1.Endpoint{{Protocol: "TCP", Port: uint32(taken.First())}}
	_, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}})
	if err == nil || !strings.Contains(err.Error(), "vips[0].endpoints[0].port") || !strings.Contains(err.Error(), "add it to snat.reserved") {
		t.Errorf("got %v", err)
	}
	vip.Endpoints[0].Port = 40000
	apply(t, url, vip)
	vip.Endpoints[0].Port = 0
	_, err = client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}})
	if err == nil || !strings.Contains(err.Error(), "must not be all ports") {
		t.Errorf("got %v", err)
	}
	second := crawler()
	second.Name, second.Address = "second", "203.0.113.21"
	_, err = client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{second}})
	if err == nil || !strings.Contains(err.Error(), "snat.workloads[0].address: 10.3.1.11 leaves as VIP crawler already") {
		t.Errorf("got %v", err)
	}
}

// What muxes and hosts say that they have is compared with what they were told, and they get it anew.
func TestAuditMendsNodes(t *testing.T) {
	url, mux, hosts := leaving(t)
	client := dial(t, url)
	mux.mu.Lock()
	mux.lies = true
	before := mux.snapshots
	mux.mu.Unlock()
	eventually(t, "the mux gets a snapshot", func() bool {
		mux.mu.Lock()
		report := &weirv1.ReportMuxRequest{
			Name: "mux1", Generation: uint64(mux.generation), Status: &weirv1.MuxStatus{Snat: mux.snatStatus()},
		}
		after := mux.snapshots
		mux.mu.Unlock()
		if _, err := client.ReportMux(t.Context(), report); err != nil {
			t.Fatal(err)
		}
		return after > before
	})
	hosts[0].mu.Lock()
	hosts[0].lies = true
	was := hosts[0].snapshots
	hosts[0].mu.Unlock()
	eventually(t, "the host gets a snapshot", func() bool {
		if err := hosts[0].report(); err != nil {
			t.Fatal(err)
		}
		hosts[0].mu.Lock()
		defer hosts[0].mu.Unlock()
		return hosts[0].snapshots > was
	})
	for _, object := range []string{"mux1", "host1"} {
		eventually(t, "an event tells of "+object, func() bool {
			r, err := client.ListEvents(t.Context(), &weirv1.ListEventsRequest{Object: object})
			return err == nil && slices.ContainsFunc(r.GetEvents(), func(e *weirv1.Event) bool { return e.GetReason() == "PortsDiffer" })
		})
	}
}

// The ports of a workload that is in the list no more are in quarantine, and are somebody else's after that.
func TestPortsOfRemovedWorkloadsAreQuarantined(t *testing.T) {
	url, mux, hosts := leaving(t, func(m *Manager) { m.allocator.Quarantine = 2 * time.Second })
	client := dial(t, url)
	vip := crawler()
	vip.Snat.Workloads = vip.Snat.Workloads[1:]
	apply(t, url, vip)
	eventually(t, "mux and host forget it", func() bool {
		return !hosts[0].holds(firstSNATClient).Key.VIP.IsValid() && len(mux.owners(firstSNATClient.VIP)) == 1
	})
	r, err := client.GetSNAT(t.Context(), &weirv1.GetSNATRequest{Name: "crawler"})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.GetWorkloads()); n == 2 && !r.GetWorkloads()[1].GetRemoved() {
		t.Errorf("there are %v", r.GetWorkloads())
	}
	eventually(t, "its ports are free", func() bool {
		r, err := client.GetSNAT(t.Context(), &weirv1.GetSNATRequest{Name: "crawler"})
		return err == nil && len(r.GetWorkloads()) == 1 && r.GetStatus().GetPortsQuarantined() == 0
	})
}
