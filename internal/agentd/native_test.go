package agentd

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// A host has addresses that no manager knows of: of a management interface, or of a bridge. A tenant can name one as its
// backend, but reaches nothing there: it is a workload only if --native-prefixes holds it, or if it is one of the uplink's.
const (
	uplink4, uplink6         = "10.2.0.1", "fd00:2::1"
	management4, management6 = "10.88.0.1", "fd00:88::1"
	permitted4, permitted6   = "10.4.0.7", "fd00:4::7"
	container4, container6   = "10.3.0.1", "fd00:3::1"
)

func ownReason(address string) string {
	return "backend " + address + " is an address of this host itself, and not in --native-prefixes"
}

// onOwnHost has the addresses above where they are, on a host that is known by those of its uplink.
func onOwnHost(c *Config, b *bench) {
	c.Addresses = []netip.Addr{netip.MustParseAddr(uplink4), netip.MustParseAddr(uplink6)}
	c.Native = []netip.Prefix{netip.MustParsePrefix("10.4.0.0/24"), netip.MustParsePrefix("fd00:4::/64")}
	for _, a := range []string{uplink4, uplink6, management4, management6, permitted4, permitted6} {
		b.workloads.move(netip.MustParseAddr(a), 0)
	}
	b.workloads.move(netip.MustParseAddr(container4), 7)
	b.workloads.move(netip.MustParseAddr(container6), 7)
}

// tenantBackends are backends of a tenant at port 22 of the addresses, checked every 20 ms.
func tenantBackends(addresses ...string) []model.HostBackend {
	all := make([]model.HostBackend, len(addresses))
	for i, address := range addresses {
		b := backend(i + 1)
		b.Tenant = "red"
		b.Backend = netip.AddrPortFrom(netip.MustParseAddr(address), 22)
		b.Tunnel, b.Endpoint.Port, b.HealthCheck.Fall = b.Backend.Addr(), uint16(1000+i), 1
		b.HealthCheck.Interval, b.HealthCheck.Timeout = 20*time.Millisecond, 20*time.Millisecond
		if b.Backend.Addr().Is6() {
			b.Endpoint.VIP = netip.MustParseAddr("2001:db8:1::10")
		}
		all[i] = b
	}
	return all
}

func placesOf(addresses map[string]int) map[netip.Addr]int {
	all := make(map[netip.Addr]int, len(addresses))
	for a, at := range addresses {
		all[netip.MustParseAddr(a)] = at
	}
	return all
}

func TestAddressesOfTheHostItselfAreNotBackends(t *testing.T) {
	b := newBench(t, onOwnHost)
	wanted := tenantBackends(uplink4, uplink6, management4, management6, permitted4, permitted6, container4, container6)
	b.manager.updates <- snapshot(5, wanted...)
	told := map[string]string{}
	report := b.manager.await(t, "the health of all", func(r *weirv1.ReportHostRequest) bool {
		for _, h := range r.GetHealth() {
			told[h.GetAddress()] = strings.TrimSpace(h.GetHealth() + " " + h.GetReason())
		}
		return len(told) == len(wanted)
	})
	own := []string{management4, management6}
	for _, c := range wanted {
		address, want := c.Backend.Addr().String(), "healthy"
		if slices.Contains(own, address) {
			want = "unhealthy " + ownReason(address)
		}
		if told[address] != want {
			t.Errorf("%s is %q, want %q", address, told[address], want)
		}
	}
	for asked := range b.probes.counts() {
		if slices.Contains(own, asked.Addr().String()) {
			t.Errorf("%s was asked", asked)
		}
	}
	want := placesOf(map[string]int{uplink4: 0, uplink6: 0, permitted4: 0, permitted6: 0, container4: 7, container6: 7})
	if got := b.datapath.live(); !maps.Equal(got, want) {
		t.Errorf("the data plane is told of workloads %v, want %v", got, want)
	}
	if got, want := b.datapath.refusals(), []netip.Addr{netip.MustParseAddr(management4), netip.MustParseAddr(management6)}; !slices.Equal(got, want) {
		t.Errorf("the data plane is told of addresses that are none %v, want %v", got, want)
	}
	if got, want := strings.Join(report.GetStatus().GetWarnings(), "; "), ownReason(management4)+"; "+ownReason(management6); got != want {
		t.Errorf("warns %q, want %q", got, want)
	}
}

// What a workload leaves as a VIP from is held to the same.
func TestTheHostItselfDoesNotLeaveAsAVIP(t *testing.T) {
	config := Config{Datapath: newFakeDatapath(), Log: slog.New(slog.DiscardHandler)}
	b := &bench{workloads: newFakeWorkloads()}
	onOwnHost(&config, b)
	config.Workloads = b.workloads
	tables, err := newTables(config)
	if err != nil {
		t.Fatal(err)
	}
	var listed []netip.Addr
	for _, a := range []string{uplink4, management4, management6, permitted6, container4} {
		listed = append(listed, netip.MustParseAddr(a))
	}
	tables.list(listed)
	got, want := config.Datapath.(*fakeDatapath).live(), placesOf(map[string]int{uplink4: 0, permitted6: 0, container4: 7})
	if !maps.Equal(got, want) {
		t.Errorf("the data plane is told of workloads %v, want %v", got, want)
	}
}

// An address that the host gets, or that moves from a container to the host, becomes none; one that moves the other way
// becomes a workload.
func TestAnAddressBecomesTheHostsOwn(t *testing.T) {
	b := newBench(t, onOwnHost)
	b.manager.updates <- snapshot(5, tenantBackends(container4, management6)...)
	b.manager.await(t, "generation 5", runs(5))
	is := func(what string, want map[string]int) {
		t.Helper()
		b.workloads.changes <- struct{}{}
		eventually(t, what, func() bool { return maps.Equal(b.datapath.live(), placesOf(want)) })
	}
	is("the container", map[string]int{container4: 7})
	b.workloads.move(netip.MustParseAddr(container4), 0)
	b.workloads.move(netip.MustParseAddr(management6), 9)
	is("the other way", map[string]int{management6: 9})
}

// After a restart the tables do not tell whose a backend is, and no manager may be there to say so.
func TestAddressesOfTheHostItselfAreNotBackendsAfterARestart(t *testing.T) {
	b := newBench(t, func(c *Config, b *bench) {
		onOwnHost(c, b)
		c.Live = map[model.HostBackendKey]model.HostBackend{}
		for _, old := range tenantBackends(management4, management6, permitted4, container6) {
			old.Tenant, old.HealthCheck = "", nil
			c.Live[old.Key()] = old
		}
	})
	want := placesOf(map[string]int{permitted4: 0, container6: 7})
	eventually(t, "the workloads of before the restart", func() bool { return maps.Equal(b.datapath.live(), want) })
}
