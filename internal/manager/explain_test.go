package manager

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/multipath"
)

// Explain follows affinity, endpoints of all ports, and how the endpoint finds open connections.
func TestExplainFollowsTheSettings(t *testing.T) {
	url, _ := start(t, Config{})
	client := dial(t, url)
	startHost(t, url, "host1", "10.2.1.2")
	eventually(t, "the host is connected", func() bool { return nodes(t, client) == 1 })
	vip := &weirv1.VIP{Name: "shop", Address: "203.0.113.10", Endpoints: []*weirv1.Endpoint{
		{Protocol: "TCP", Port: 80, Affinity: "client"},
		{Protocol: "TCP", Backends: []*weirv1.Backend{{Address: "10.3.1.99", Host: "host1"}}},
	}}
	for _, address := range []string{"10.3.1.11", "10.3.1.12", "10.3.1.13", "10.3.1.14"} {
		vip.Endpoints[0].Backends = append(vip.Endpoints[0].Backends, &weirv1.Backend{Address: address, Port: 8080, Host: "host1"})
	}
	apply(t, url, vip)
	explain := func(source, destination uint32) *weirv1.ExplainResponse {
		t.Helper()
		r, err := client.Explain(t.Context(), &weirv1.ExplainRequest{
			Protocol: "TCP", SourceAddress: "198.51.100.7", SourcePort: source,
			DestinationAddress: "203.0.113.10", DestinationPort: destination,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	bucket := explain(1024, 80).Bucket
	for port := uint32(1025); port < 1056; port++ {
		if r := explain(port, 80); r.Bucket != bucket {
			t.Fatalf("port %d leads to bucket %d, another one to %d", port, r.Bucket, bucket)
		}
	}
	spread := map[uint32]bool{}
	for port := uint32(1024); port < 1056; port++ {
		spread[explain(port, 22).Bucket] = true
	}
	if len(spread) < 2 {
		t.Error("without affinity all ports of a client lead to one bucket")
	}
	vip.Endpoints[0].Deny = []string{"198.51.100.0/24"}
	apply(t, url, vip)
	refused := explain(1024, 80)
	if got := strings.Join(refused.Steps, "\n"); refused.Backend != nil || !strings.Contains(got, "drop the flow, by 198.51.100.0/24 in deny") {
		t.Errorf("a source that is denied gets %v: %s", refused.Backend, got)
	}
	steps := strings.Join(explain(1024, 22).Steps, "\n")
	for _, want := range []string{"TCP 203.0.113.10, all ports of VIP shop", "by the cookie in its TCP timestamps", "to 10.3.1.99:22"} {
		if !strings.Contains(steps, want) {
			t.Errorf("%q is not in\n%s", want, steps)
		}
	}
}

// A port that no endpoint has is of a workload that leaves as the VIP, or nobody's: muxes pass neither on.
func TestExplainOfAnAnswer(t *testing.T) {
	url, _ := start(t, Config{})
	client := dial(t, url)
	startHost(t, url, "host1", "10.2.1.2")
	eventually(t, "the host is connected", func() bool { return nodes(t, client) == 1 })
	apply(t, url, &weirv1.VIP{
		Name: "crawler", Address: "203.0.113.20",
		Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 80, Backends: []*weirv1.Backend{{Address: "10.3.1.11", Host: "host1"}}}},
		Snat:      &weirv1.SNAT{Workloads: []*weirv1.SNATWorkload{{Address: "10.3.1.12", Host: "host1"}}},
	})
	leaving, err := client.GetSNAT(t.Context(), &weirv1.GetSNATRequest{Name: "crawler"})
	if err != nil || len(leaving.GetWorkloads()) != 1 || len(leaving.GetWorkloads()[0].GetRanges()) == 0 {
		t.Fatalf("no ranges: %v, %v", leaving, err)
	}
	explain := func(port uint32) (*weirv1.ExplainResponse, string) {
		t.Helper()
		r, err := client.Explain(t.Context(), &weirv1.ExplainRequest{
			Protocol: "TCP", SourceAddress: "198.51.100.7", SourcePort: 443, DestinationAddress: "203.0.113.20", DestinationPort: port,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r, strings.Join(r.GetSteps(), "\n")
	}
	own := leaving.GetWorkloads()[0].GetRanges()[0]*model.RangePorts + 3
	if r, steps := explain(own); r.GetBackend().GetAddress() != "10.3.1.12" || r.GetBackend().GetHost() != "host1" ||
		!strings.Contains(steps, "is workload 10.3.1.12's") || !strings.Contains(steps, "forward_snat") {
		t.Errorf("port %d of the workload: %v\n%s", own, r.GetBackend(), steps)
	}
	if r, steps := explain(81); r.GetBackend() != nil || !strings.Contains(steps, "drop_no_range") {
		t.Errorf("a port of nobody: %v\n%s", r.GetBackend(), steps)
	}
	if r, _ := explain(80); r.GetBackend().GetAddress() != "10.3.1.11" || r.GetSlot() == 0 {
		t.Errorf("the endpoint's port: %v", r)
	}
}

// holders are the tunnels of tokens that all hosts know.
var holders = map[uint32]string{9: "10.3.1.13", 27: "10.9.9.9"}

// explained are the hosts that have said whether they know a token.
func explained(r *weirv1.ExplainResponse) (hosts []string) {
	for _, step := range r.GetSteps() {
		if host, what, _ := strings.Cut(step, " "); strings.HasPrefix(what, "says that") || strings.HasPrefix(what, "does not know") {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// A subflow of Multipath TCP goes by the homes of its token, where the endpoint has multipath.
func TestExplainOfAJoin(t *testing.T) {
	url, _ := start(t, Config{})
	client := dial(t, url)
	vip := &weirv1.VIP{Name: "shop", Address: "203.0.113.10", Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 80}}}
	for i, host := range []string{"host1", "host2", "host3"} {
		startHost(t, url, host, fmt.Sprintf("10.2.1.%d", 2+i))
		vip.Endpoints[0].Backends = append(vip.Endpoints[0].Backends, &weirv1.Backend{Address: fmt.Sprintf("10.3.1.%d", 11+i), Port: 8080, Host: host})
	}
	eventually(t, "the hosts are connected", func() bool { return nodes(t, client) == 3 })
	explain := func(token uint32) *weirv1.ExplainResponse {
		t.Helper()
		r, err := client.Explain(t.Context(), &weirv1.ExplainRequest{
			Protocol: "TCP", SourceAddress: "198.51.100.7", SourcePort: 40000, DestinationAddress: "203.0.113.10", DestinationPort: 80, MultipathToken: token,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	apply(t, url, vip)
	if r := explain(7); len(r.Homes) != 0 || !strings.Contains(strings.Join(r.Steps, "\n"), "the endpoint has no multipath") {
		t.Errorf("without multipath: %v", r)
	}
	vip.Endpoints[0].Multipath = "auto"
	apply(t, url, vip)
	if r := explain(0); len(r.Homes) != 0 {
		t.Errorf("of a new connection: %v", r)
	}
	tunnels := []netip.Addr{netip.MustParseAddr("10.3.1.11"), netip.MustParseAddr("10.3.1.12"), netip.MustParseAddr("10.3.1.13")}
	for token := uint32(1); token < 1<<31; token *= 3 {
		r := explain(token)
		var want []string
		for _, home := range multipath.HomesOf(tunnels)[multipath.Token(token).Cell()] {
			want = append(want, fmt.Sprintf("host%d", home.As4()[3]-10))
		}
		if !slices.Equal(r.Homes, want) || !strings.Contains(strings.Join(r.Steps, "\n"), strings.Join(want, ", then ")) {
			t.Errorf("homes of 0x%08x are %v, not %v", token, r.Homes, want)
		}
		holder := ""
		if token == 9 {
			holder = "host3"
		}
		if first, said := r.GetBackend().GetHost(), explained(r); len(said) == 0 || said[0] != first || len(slices.Compact(slices.Sorted(slices.Values(said)))) != len(said) {
			t.Errorf("0x%08x comes to %s first, asked are %v", token, first, said)
		}
		if r.Holder != holder {
			t.Errorf("0x%08x is on %q, not %q:\n%s", token, r.Holder, holder, strings.Join(r.Steps, "\n"))
		}
	}
}
