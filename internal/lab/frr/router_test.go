package frr_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/frr"
	"github.com/weirlb/weir/internal/lab/netns"
)

func TestRouterRunsAndLeavesNothing(t *testing.T) {
	ns := netns.New(t, "frr-test")
	r, err := frr.Start(ns, frr.Config{
		AS: 65000, RouterID: netip.MustParseAddr("10.255.0.1"), PeerAS: 65010, Password: "s3cret",
		Ranges:    []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16"), netip.MustParsePrefix("fd00:8::/32")},
		Neighbors: []netip.Addr{netip.MustParseAddr("10.9.0.2")},
		BFD:       100 * time.Millisecond, GracefulRestart: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Vtysh("show bgp neighbors json")
	if err != nil {
		t.Fatal(err)
	}
	var neighbors map[string]any
	if err := json.Unmarshal([]byte(out), &neighbors); err != nil || neighbors["10.9.0.2"] == nil {
		t.Errorf("neighbours: %v: %s", err, out)
	}
	if policy, err := ns.Run("sysctl", "-n", "net.ipv4.fib_multipath_hash_policy"); err != nil || policy != "1\n" {
		t.Errorf("ECMP hash policy: %q, %v", policy, err)
	}
	if err := frr.Open(r.Dir()).Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.Dir()); !os.IsNotExist(err) {
		t.Errorf("stop left %s", r.Dir())
	}
	if err := r.Stop(); err != nil {
		t.Errorf("a second stop: %v", err)
	}
}

func TestRouterRefusesBadConfiguration(t *testing.T) {
	ns := netns.New(t, "frr-bad")
	if r, err := frr.Start(ns, frr.Config{AS: 65000, PeerAS: 65010, RouterID: netip.MustParseAddr("fd00::1")}); err == nil {
		r.Stop()
		t.Error("a router with an IPv6 router id started")
	}
}
