package manager

import (
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
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
