package netdev

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/lab/netns"
)

func TestUnreachable(t *testing.T) {
	ns := netns.New(t, "netdevroute")
	other := netns.New(t, "netdevother")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(netns.Veth(ns, "a", other, "b"))
	must(ns.AddAddress("a", netip.MustParsePrefix("10.1.0.1/24"), netip.MustParsePrefix("fd00:1::1/64")))
	for i, kind := range []string{"unreachable", "blackhole", "prohibit"} {
		for _, prefix := range []string{fmt.Sprintf("10.%d.0.0/24", 3+i), fmt.Sprintf("fd00:%d::/64", 3+i)} {
			_, err := ns.Run("ip", "route", "add", kind, prefix)
			must(err)
		}
	}
	var r *Reader
	must(ns.Do(func() (err error) { r, err = Open(Config{}); return err }))
	defer r.Close()
	var tunnels []netip.Addr
	for _, text := range []string{
		"10.1.0.7", "10.2.0.7", "10.3.0.7", "10.4.0.7", "10.5.0.7", "fd00:1::7", "fd00:2::7", "fd00:3::7", "fd00:4::7", "fd00:5::7",
	} {
		tunnels = append(tunnels, netip.MustParseAddr(text))
	}
	none, err := r.Unreachable(t.Context(), tunnels)
	if got, want := fmt.Sprint(none), "[10.2.0.7 10.3.0.7 10.4.0.7 10.5.0.7 fd00:2::7 fd00:3::7 fd00:4::7 fd00:5::7]"; got != want || err != nil {
		t.Errorf("no route to %s (%v), want %s", got, err, want)
	}
}
