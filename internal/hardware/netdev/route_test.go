package netdev

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/hardware"
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
	var tunnels []hardware.Tunnel
	for _, text := range []string{
		"10.1.0.7", "10.2.0.7", "10.3.0.7", "10.4.0.7", "10.5.0.7", "fd00:1::7", "fd00:2::7", "fd00:3::7", "fd00:4::7", "fd00:5::7",
	} {
		tunnels = append(tunnels, hardware.Tunnel{Address: netip.MustParseAddr(text)})
	}
	none, err := r.Unreachable(t.Context(), tunnels)
	if got, want := fmt.Sprint(none), "[10.2.0.7 10.3.0.7 10.4.0.7 10.5.0.7 fd00:2::7 fd00:3::7 fd00:4::7 fd00:5::7]"; got != want || err != nil {
		t.Errorf("no route to %s (%v), want %s", got, err, want)
	}
}

// A TIP is reached by a route to it alone: a wider one is there without it too.
func TestUnreachableTIPs(t *testing.T) {
	ns := netns.New(t, "netdevtip")
	other := netns.New(t, "netdevtipother")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(netns.Veth(ns, "a", other, "b"))
	must(ns.AddAddress("a", netip.MustParsePrefix("10.1.0.1/24"), netip.MustParsePrefix("fd00:1::1/64")))
	for _, route := range []string{
		"default via 10.1.0.2", "192.0.2.0/24 via 10.1.0.2", "192.0.2.1/32 via 10.1.0.2", "unreachable 192.0.2.3/32", "192.0.2.4/32 nexthop via 10.1.0.2 nexthop via 10.1.0.3",
		"-6 default via fd00:1::2", "-6 2001:db8::/64 via fd00:1::2", "-6 2001:db8::1/128 via fd00:1::2", "-6 blackhole 2001:db8::3/128",
	} {
		fields := strings.Fields(route)
		arguments := append([]string{"route", "add"}, fields...)
		if fields[0] == "-6" {
			arguments = append([]string{"-6", "route", "add"}, fields[1:]...)
		}
		_, err := ns.Run("ip", arguments...)
		must(err)
	}
	var r *Reader
	must(ns.Do(func() (err error) { r, err = Open(Config{}); return err }))
	defer r.Close()
	var tunnels []hardware.Tunnel
	for _, text := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "198.51.100.1", "2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db9::1"} {
		tunnels = append(tunnels, hardware.Tunnel{Address: netip.MustParseAddr(text), TIP: true})
	}
	none, err := r.Unreachable(t.Context(), tunnels)
	if got, want := fmt.Sprint(none), "[192.0.2.2 192.0.2.3 198.51.100.1 2001:db8::2 2001:db8::3 2001:db9::1]"; got != want || err != nil {
		t.Errorf("no route to %s (%v), want %s", got, err, want)
	}
}

// Rules that go by more than the destination are told of; those that every machine has, and those by destination, are not.
func TestRulesOfPolicyRouting(t *testing.T) {
	ns := netns.New(t, "netdevrule")
	other := netns.New(t, "netdevruleother")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(netns.Veth(ns, "a", other, "b"))
	var r *Reader
	must(ns.Do(func() (err error) { r, err = Open(Config{}); return err }))
	defer r.Close()
	for _, c := range []struct {
		family, rule string
		warns        bool
	}{
		{"-4", "", false},
		{"-4", "to 10.9.0.0/16 lookup 100", false},
		{"-4", "iif a lookup 100", true},
		{"-6", "iif a lookup 100", true},
		{"-6", "from 2001:db8::/32 lookup 100", true},
		{"-4", "fwmark 7 lookup 100", true},
	} {
		arguments := append([]string{c.family, "rule", "add", "pref", "700"}, strings.Fields(c.rule)...)
		if c.rule != "" {
			_, err := ns.Run("ip", arguments...)
			must(err)
		}
		warning, err := r.RouteWarning()
		if (warning != "") != c.warns || c.warns && !strings.Contains(warning, "rule 700 ") || err != nil {
			t.Errorf("%s %s: %q (%v)", c.family, c.rule, warning, err)
		}
		if c.rule != "" {
			_, err = ns.Run("ip", c.family, "rule", "del", "pref", "700")
			must(err)
		}
	}
}
