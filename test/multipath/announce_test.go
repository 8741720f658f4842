package multipath

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// signalled are VIPs with a port of their own for each backend.
var signalled4, signalled6 = netip.MustParseAddr("203.0.113.70"), netip.MustParseAddr("2001:db8:113::70")

const firstPort = 8001

// fellBack counts a client's connections.
const fellBack = "MPCapableDataFallback"

// announce has a workload's kernel announce an address; port 0: none.
func announce(t *testing.T, lab *netlab.Lab, node string, address netip.Addr, port int) {
	t.Helper()
	args := []string{"mptcp", "endpoint", "add", address.String()}
	if port != 0 {
		args = append(args, "port", fmt.Sprint(port))
	}
	_, err := lab.Run(node, "ip", append(args, "signal")...)
	testlab.Must(t, err)
}

// forget ends what workloads announce.
func forget(t *testing.T, lab *netlab.Lab) {
	t.Helper()
	for _, node := range servers(lab) {
		_, err := lab.Run(node, "ip", "mptcp", "endpoint", "flush")
		testlab.Must(t, err)
	}
}

// announced is how many announcements the workloads' kernels sent, and the client's took.
func announced(t *testing.T, lab *netlab.Lab) (sent, taken int) {
	t.Helper()
	return sums(t, lab, servers(lab)...)["AddAddrTx"], counters(t, lab, "client1")["AddAddr"]
}

// onlyTheVIPIsAnnounced has workloads announce their own addresses, which clients must not be told, and then the VIP.
func onlyTheVIPIsAnnounced(t *testing.T, lab *netlab.Lab) {
	for _, n := range lab.Of(netlab.Workload) {
		announce(t, lab, n.Name, n.IPv4, 0)
		announce(t, lab, n.Name, n.IPv6, 0)
	}
	sent, taken := announced(t, lab)
	plain := counters(t, lab, "client1")[fellBack]
	all := dialAll(t, lab, vip4, vip6, plain4, plain6)
	for range 50 {
		if now, _ := announced(t, lab); now-sent >= len(all) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	askAll(t, all)
	sentNow, takenNow := announced(t, lab)
	t.Logf("of %d connections: %d announcements were sent, the client took %d", len(all), sentNow-sent, takenNow-taken)
	if sentNow-sent < len(all) {
		t.Errorf("%d announcements were sent by %d connections: then this test says nothing", sentNow-sent, len(all))
	}
	if takenNow != taken {
		t.Errorf("the client was told of %d addresses", takenNow-taken)
	}
	if now := counters(t, lab, "client1")[fellBack]; now != plain {
		t.Errorf("%d connections fell back to plain TCP, as the client's first segment had no option of Multipath TCP", now-plain)
	}
	forget(t, lab)

	for _, node := range servers(lab) {
		announce(t, lab, node, vip4, 0)
	}
	_, taken = announced(t, lab)
	all = dialAll(t, lab, vip4)
	for range 50 {
		if _, takenNow = announced(t, lab); takenNow-taken >= len(all) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	askAll(t, all)
	if takenNow-taken < len(all) {
		t.Errorf("the client was told of the VIP by %d of %d connections", takenNow-taken, len(all))
	}
	forget(t, lab)
}

// signalledVIP is the manifest of a VIP with an endpoint of all backends, and one of each backend alone.
func signalledVIP(lab *netlab.Lab, name string, address netip.Addr) string {
	var b strings.Builder
	b.WriteString(vip(lab, name, address, ""))
	for i, backend := range slices.Collect(strings.Lines(testlab.Backends(lab, address))) {
		fmt.Fprintf(&b, "    - protocol: TCP\n      port: %d\n      backends:\n%s", firstPort+i, backend)
	}
	return b.String()
}

// portsAreSignalled plays docs/operations/multipath.md: joins find their backend by a port of its own, without any directory.
func portsAreSignalled(t *testing.T, lab *netlab.Lab) {
	testlab.Apply(t, lab, signalledVIP(lab, "signalled-4", signalled4), signalledVIP(lab, "signalled-6", signalled6))
	testlab.WaitServed(t, lab, signalled4, signalled6)
	set := func(node string, settings ...string) {
		_, err := lab.Run(node, "sysctl", append([]string{"-qw"}, settings...)...)
		testlab.Must(t, err)
	}
	for _, node := range servers(lab) {
		set(node, "net.mptcp.allow_join_initial_addr_port=0", "net.ipv4.ip_nonlocal_bind=1", "net.ipv6.ip_nonlocal_bind=1")
	}
	t.Cleanup(func() {
		for _, node := range servers(lab) {
			set(node, "net.mptcp.allow_join_initial_addr_port=1")
		}
	})
	for family, address := range map[string]netip.Addr{"v4": signalled4, "v6": signalled6} {
		t.Run(family, func(t *testing.T) {
			want := 0 // an announcement with a port of IPv6 does not fit beside timestamps: Linux sends none
			if address.Is4() {
				want = connections
			}
			t.Cleanup(func() { forget(t, lab) })
			for i, n := range lab.Of(netlab.Workload) {
				announce(t, lab, n.Name, address, firstPort+i)
			}
			before, wrong := counters(t, lab, "client1"), sums(t, lab, servers(lab)...)
			all := dialAll(t, lab, address)
			got := joined(t, lab, before, max(want, 1))
			after, refused := counters(t, lab, "client1"), sums(t, lab, servers(lab)...)
			t.Logf("%d of %d joined; announcements sent %d, taken %d; SYNs %d", got, len(all), refused["AddAddrTx"]-wrong["AddAddrTx"],
				after["AddAddr"]-before["AddAddr"], after["MPJoinSynTx"]-before["MPJoinSynTx"])
			if n := refused["MPJoinNoTokenFound"] - wrong["MPJoinNoTokenFound"]; n != 0 {
				t.Errorf("%d came to the wrong server", n)
			}
			if got != want {
				t.Errorf("%d of %d joined, want %d", got, len(all), want)
			}
			askAll(t, all)
		})
	}
}
