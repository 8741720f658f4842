package main

import (
	"net/netip"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// A tenant names port 22 of an address that the host has on a bridge, which its manager does not know: it is not reached,
// the operator is told why, and it stays so over a restart without a manager, unless the host's configuration permits it.
func TestABridgesAddressIsNoBackend(t *testing.T) {
	const (
		missing = "TCP 203.0.113.20:22 by 10.88.0.1 is 10.88.0.1:22 at missing, TCP [2001:db8:113::20]:22 by fd00:88::1 is [fd00:88::1]:22 at missing"
		native  = "TCP 203.0.113.20:22 by 10.88.0.1 is 10.88.0.1:22 at native, TCP [2001:db8:113::20]:22 by fd00:88::1 is [fd00:88::1]:22 at native"
		reason  = " is an address of this host itself, and not in --native-prefixes"
	)
	h := newHost(t)
	_, err := h.Run("ip", "link", "add", "br0", "type", "bridge")
	h.must(err)
	_, err = h.Run("ip", "link", "set", "br0", "up")
	h.must(err)
	h.must(h.AddAddress("br0", netip.MustParsePrefix("10.88.0.1/24"), netip.MustParsePrefix("fd00:88::1/64")))
	m := startManager(t, h.NS, t.TempDir())
	h.start()
	m.leads("203.0.113.20", "10.88.0.1")
	m.leads("2001:db8:113::20", "fd00:88::1")
	m.awaitWarning("backend 10.88.0.1" + reason + "; backend fd00:88::1" + reason)
	h.awaitBackends(missing)

	h.kill()
	m.stop()
	h.start("--native-prefixes", "10.88.0.0/24,fd00:88::/64")
	h.awaitBackends(native)
	h.kill()
	h.start()
	h.awaitBackends(missing)
}

// leads has a tenant's VIP lead to port 22 of an address of host1, once that is registered.
func (m *testManager) leads(vip, address string) {
	m.t.Helper()
	name := "ssh4"
	if netip.MustParseAddr(vip).Is6() {
		name = "ssh6"
	}
	m.poll("the VIP to be applied", func() string {
		_, err := m.ApplyVIPs(m.t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{{
			Name: name, Tenant: "red", Address: vip,
			Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 22, Backends: []*weirv1.Backend{{Address: address, Port: 22, Host: "host1"}}}},
		}}})
		if err != nil {
			return err.Error()
		}
		return ""
	}, "")
}
