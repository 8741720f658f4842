package netlink

import (
	"context"
	"maps"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netns"
)

// workloadHost is a host with an uplink and the place of a container:
//
//	router ──────── uplink  host  c1 ──────── eth0 container
//	  10.2.1.254    10.2.1.1                  10.3.1.11, fd00:3::11
func workloadHost(t *testing.T) (host, container *netns.NS, w *Workloads) {
	t.Helper()
	host = netns.New(t, "wlh-host")
	container = netns.New(t, "wlh-c1")
	router := netns.New(t, "wlh-router")
	must(t, netns.Veth(host, "uplink", router, "eth0"))
	must(t, host.AddAddress("uplink", netip.MustParsePrefix("10.2.1.1/24"), netip.MustParsePrefix("fd00:2::1/64")))
	must(t, host.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.2.1.254")))
	must(t, host.Do(func() (err error) { w, err = NewWorkloads("uplink"); return err }))
	t.Cleanup(func() { must(t, w.Close()) })
	return host, container, w
}

// plug connects the container and routes its addresses to it.
func plug(t *testing.T, host, container *netns.NS) int {
	t.Helper()
	must(t, netns.Veth(host, "c1", container, "eth0"))
	must(t, host.AddLinkRoute(netip.MustParsePrefix("10.3.1.11/32"), "c1"))
	must(t, host.AddLinkRoute(netip.MustParsePrefix("fd00:3::11/128"), "c1"))
	index, err := host.Index("c1")
	must(t, err)
	return index
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func addresses(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func TestLocate(t *testing.T) {
	host, container, w := workloadHost(t)
	c1 := plug(t, host, container)
	must(t, host.AddAddress("lo", netip.MustParsePrefix("10.3.1.50/32"), netip.MustParsePrefix("fd00:3::50/128")))
	_, err := host.Run("ip", "route", "add", "unreachable", "10.3.9.0/24")
	must(t, err)

	asked := addresses("10.2.1.1", "10.3.1.50", "fd00:3::50", "10.3.1.11", "fd00:3::11", "10.3.2.11", "10.2.1.77", "10.3.9.1", "fd00:9::1")
	found, missing, err := w.Locate(asked)
	must(t, err)
	if want := map[netip.Addr]int{
		asked[0]: Native, asked[1]: Native, asked[2]: Native, // the uplink's own, and two on lo
		asked[3]: c1, asked[4]: c1,
	}; !maps.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	const elsewhere, nowhere = " is not on this host: its route leaves by the uplink", " is not on this host: it has no route"
	if want := map[netip.Addr]string{
		asked[5]: "backend 10.3.2.11" + elsewhere, // by the default route
		asked[6]: "backend 10.2.1.77" + elsewhere, // a neighbour
		asked[7]: "backend 10.3.9.1" + nowhere,    // unreachable
		asked[8]: "backend fd00:9::1" + nowhere,   // nothing matches
	}; !maps.Equal(missing, want) {
		t.Errorf("missing %v, want %v", missing, want)
	}
}

// A container behind a bridge is reached by the bridge.
func TestLocateBehindABridge(t *testing.T) {
	host, container, w := workloadHost(t)
	must(t, netns.Veth(host, "c1", container, "eth0"))
	for _, args := range [][]string{
		{"link", "add", "br0", "type", "bridge"},
		{"link", "set", "c1", "master", "br0"},
		{"link", "set", "br0", "up"},
		{"addr", "add", "10.3.1.1/24", "dev", "br0"},
	} {
		_, err := host.Run("ip", args...)
		must(t, err)
	}
	br0, err := host.Index("br0")
	must(t, err)
	found, missing, err := w.Locate(addresses("10.3.1.11"))
	must(t, err)
	if found[netip.MustParseAddr("10.3.1.11")] != br0 || len(missing) != 0 {
		t.Errorf("found %v, missing %v, want interface %d", found, missing, br0)
	}
}

func TestLocateWithoutUplink(t *testing.T) {
	host, _, w := workloadHost(t)
	must(t, host.DeleteLink("uplink"))
	if _, _, err := w.Locate(addresses("10.2.1.1")); err == nil || err.Error() != "find uplink uplink: Link not found" {
		t.Errorf("got %v, want an error that names the uplink", err)
	}
}

// Workloads come, move and go; each time Watch says so, and Locate then finds them.
func TestWatchFollowsWorkloads(t *testing.T) {
	host, container, w := workloadHost(t)
	dip := netip.MustParseAddr("10.3.1.11")
	var mu sync.Mutex
	latest := -1 // where Locate found the DIP after the last change; -1: nowhere
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- w.Watch(ctx, func() {
			found, _, err := w.Locate([]netip.Addr{dip})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			latest = -1
			if at, ok := found[dip]; ok {
				latest = at
			}
		})
	}()
	await := func(what string, want int) {
		t.Helper()
		deadline := time.Now().Add(10 * time.Second)
		for {
			mu.Lock()
			at := latest
			mu.Unlock()
			if at == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: located at %d, want %d", what, at, want)
			}
			time.Sleep(time.Millisecond)
		}
	}
	await("plugged", plug(t, host, container))
	must(t, host.DeleteLink("c1"))
	await("unplugged", -1)
	must(t, host.AddAddress("lo", netip.MustParsePrefix("10.3.1.11/32")))
	await("native", Native)
	_, err := host.Run("ip", "addr", "del", "10.3.1.11/32", "dev", "lo")
	must(t, err)
	await("gone", -1)
	await("plugged anew", plug(t, host, container))
	_, err = host.Run("ip", "rule", "add", "to", "10.3.1.11", "blackhole", "priority", "5")
	must(t, err)
	await("hidden by a rule", -1)

	cancel()
	must(t, <-done)
}

// A host that forwards answers to the first address of each network of IPv6 that it is in (RFC 4291, section 2.6.1): that
// is the host's own, too. To all of a network nobody's packets go.
func TestLocateAnycastAndBroadcast(t *testing.T) {
	host, container, w := workloadHost(t)
	must(t, netns.Veth(host, "c1", container, "eth0"))
	must(t, host.AddAddress("c1", netip.MustParsePrefix("10.88.0.1/24"), netip.MustParsePrefix("fd00:88::1/64")))
	_, err := host.Run("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
	must(t, err)
	asked := addresses("fd00:88::", "fd00:88::1", "10.88.0.1", "10.88.0.255")
	found, missing, err := w.Locate(asked)
	must(t, err)
	if want := map[netip.Addr]int{asked[0]: Native, asked[1]: Native, asked[2]: Native}; !maps.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
	if want := map[netip.Addr]string{asked[3]: "backend 10.88.0.255 is not on this host: it is a broadcast address"}; !maps.Equal(missing, want) {
		t.Errorf("missing %v, want %v", missing, want)
	}
}
