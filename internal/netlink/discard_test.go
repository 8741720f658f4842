package netlink

import (
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

// discarder works on the mux's eth0, as a process of its own would.
func (n *network) discarder() *Discard {
	n.t.Helper()
	var d *Discard
	must(n.t, n.mux.Do(func() (err error) { d, err = NewDiscard("eth0", slog.New(slog.DiscardHandler)); return err }))
	n.t.Cleanup(d.Close)
	return d
}

// way is what a mux that forwards does with a packet: by where it goes out, or "discarded".
func (n *network) way(what string) string {
	n.t.Helper()
	out, err := n.mux.Run("ip", strings.Fields("-o route get "+what)...)
	if err != nil {
		if strings.Contains(out, "Invalid argument") || strings.Contains(out, "blackhole") {
			return "discarded"
		}
		n.t.Fatal(err)
	}
	switch {
	case strings.Contains(out, "blackhole"):
		return "discarded"
	case strings.Contains(out, "local"):
		return "here"
	}
	return "out"
}

func TestDiscardEndsLoops(t *testing.T) {
	n := newNetwork(t)
	n.forward()
	ways := func(when string, want map[string]string) {
		t.Helper()
		for what, want := range want {
			if got := n.way(what); got != want {
				t.Errorf("%s: %s goes %s, want %s", when, what, got, want)
			}
		}
	}
	loop4, loop6 := "203.0.113.10 from 10.9.9.9 iif eth0", "2001:db8:113::10 from fd00:9::9 iif eth0"
	ways("before", map[string]string{loop4: "out", loop6: "out"})

	d := n.discarder()
	all := prefixes("203.0.113.10/32", "203.0.113.64/26", "2001:db8:113::10/128")
	must(t, d.Set(all))
	must(t, d.Set(all))
	ways("set", map[string]string{
		loop4:                                 "discarded",
		loop6:                                 "discarded",
		"203.0.113.99 from 10.9.9.9 iif eth0": "discarded",
		"203.0.113.11 from 10.9.9.9 iif eth0": "out",
		"203.0.113.10 from 10.9.9.9 iif eth1": "out", // not the interface that they are announced on
		"203.0.113.10":                        "out", // our own
		"2001:db8:113::10":                    "out",
		"10.7.0.9 from 10.9.9.9 iif eth0":     "here",
	})

	// A restart takes over what stands, and changes only what differs.
	next := n.discarder()
	must(t, next.Set(prefixes("2001:db8:113::10/128")))
	ways("one left", map[string]string{loop4: "out", loop6: "discarded"})

	must(t, next.Set(nil))
	must(t, next.Set(nil))
	ways("none left", map[string]string{loop4: "out", loop6: "out"})
	for _, family := range []string{"-4", "-6"} {
		if rules := n.ip(n.mux, family+" rule"); strings.Contains(rules, "eth0") {
			t.Errorf("rules are left: %s", rules)
		}
	}
}

// What others on the machine remove is there again.
func TestDiscardIsKept(t *testing.T) {
	n := newNetwork(t)
	n.forward()
	d := n.discarder()
	must(t, d.Set(prefixes("203.0.113.10/32", "203.0.113.11/32", "2001:db8:113::10/128")))
	flushed := map[string]int{
		"rule del pref 100": 0, "-6 rule del pref 100": 0,
		"route flush table " + strconv.Itoa(d.table): 2, "-6 route flush table " + strconv.Itoa(d.table): 1,
	}
	for what, lost := range flushed {
		n.ip(n.mux, what)
		got, err := d.reconcile()
		must(t, err)
		if got != lost {
			t.Errorf("%s: %d routes were lost, want %d", what, got, lost)
		}
		for _, loop := range []string{"203.0.113.11 from 10.9.9.9 iif eth0", "2001:db8:113::10 from fd00:9::9 iif eth0"} {
			if way := n.way(loop); way != "discarded" {
				t.Errorf("%s: %s goes %s", what, loop, way)
			}
		}
	}
	must(t, d.Set(nil))
	if lost, err := d.reconcile(); lost != 0 || err != nil {
		t.Errorf("of nothing %d routes were lost: %v", lost, err)
	}
	if way := n.way("203.0.113.11 from 10.9.9.9 iif eth0"); way != "out" {
		t.Errorf("what is not discarded any more goes %s", way)
	}
}

// forward makes the mux a machine that forwards to the router.
func (n *network) forward() {
	n.t.Helper()
	n.ip(n.mux, "route add default via 10.7.0.1")
	n.ip(n.mux, "route add default via fd00:7::1")
	for _, knob := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		must(n.t, n.mux.Sysctl(knob, "1"))
	}
	for _, dev := range []string{"all", "eth0", "eth1"} {
		must(n.t, n.mux.Sysctl("net.ipv4.conf."+dev+".rp_filter", "0"))
	}
}
