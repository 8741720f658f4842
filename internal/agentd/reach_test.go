package agentd

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// A check goes to a workload of this host, and nowhere else: what the manager was told of another address is not asked.
func TestChecksReachWorkloadsOfThisHostAlone(t *testing.T) {
	b := newBench(t, nil)
	var wanted []model.HostBackend
	at := func(address string) model.HostBackend {
		c := backend(len(wanted) + 1)
		c.Backend = netip.AddrPortFrom(netip.MustParseAddr(address), 80)
		c.Tunnel, c.Endpoint.Port, c.HealthCheck.Fall = c.Backend.Addr(), uint16(1000+len(wanted)), 1
		c.HealthCheck.Interval, c.HealthCheck.Timeout = 20*time.Millisecond, 20*time.Millisecond
		if c.Backend.Addr().Is6() {
			c.Endpoint.VIP = netip.MustParseAddr("2001:db8:1::10")
		}
		wanted = append(wanted, c)
		return c
	}
	own := at("10.3.0.1")
	b.workloads.move(own.Backend.Addr(), 7)
	for _, elsewhere := range []string{"10.3.9.9", "10.99.0.1", "100.100.100.200", "fd00:ec2::254"} {
		at(elsewhere)
	}
	b.manager.updates <- snapshot(5, wanted...)
	told := map[string]string{}
	b.manager.await(t, "the health of all", func(r *weirv1.ReportHostRequest) bool {
		for _, h := range r.GetHealth() {
			told[h.GetAddress()] = h.GetHealth() + " " + h.GetReason()
		}
		return len(told) == len(wanted)
	})
	for _, c := range wanted {
		address := c.Backend.Addr().String()
		want := "unhealthy backend " + address + " is not on this host"
		if c.Backend == own.Backend {
			want = "healthy "
		}
		if told[address] != want {
			t.Errorf("%s is %q, want %q", address, told[address], want)
		}
	}
	for asked := range b.probes.counts() {
		if asked != own.Backend {
			t.Errorf("%s was asked", asked)
		}
	}
	// Nor where a route leads to it, as to the metadata service of a cloud.
	for _, address := range []string{"169.254.169.254", "127.0.0.1", "fe80::1", "::1", "224.0.0.1", "255.255.255.255", "0.0.0.0"} {
		a := netip.MustParseAddr(address)
		tables := &tables{log: b.agent.config.Log, datapath: newFakeDatapath(), workloads: &fakeWorkloads{at: map[netip.Addr]int{a: 7}}}
		tables.backends = map[model.HostBackendKey]model.HostBackend{{}: {Backend: netip.AddrPortFrom(a, 80)}}
		if err := tables.find(); err != nil {
			t.Fatal(err)
		}
		if err := tables.unreachable(a); err == nil || !strings.Contains(err.Error(), "is no workload: must be a routable unicast address") {
			t.Errorf("%s: %v", a, err)
		}
		if got := tables.datapath.(*fakeDatapath).workloads; len(got) != 0 {
			t.Errorf("the data plane is told of %v", got)
		}
	}
}
