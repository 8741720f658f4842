package muxd

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/netlink"
)

// read reads a command line, on a machine with one interface.
func read(addresses string, args ...string) (settings, error) {
	var o Options
	cmd := &cobra.Command{}
	o.Flags(cmd)
	if err := cmd.ParseFlags(append([]string{"--name", "mux-1", "--interface", "eth0"}, args...)); err != nil {
		return settings{}, err
	}
	return o.settings(func(name string) (netlink.Interface, error) {
		found := netlink.Interface{Name: name, MTU: 1500}
		if name != "eth0" {
			return found, fmt.Errorf("interface %s not found; this machine has: eth0, lo", name)
		}
		for _, a := range strings.Fields(addresses) {
			found.Addresses = append(found.Addresses, netip.MustParseAddr(a))
		}
		return found, nil
	})
}

func TestOptions(t *testing.T) {
	s, err := read("fe80::1 10.7.0.9 fd00:7::9", "--as", "65010", "--announce", "aggregate", "--aggregate", "203.0.113.7/24",
		"--peer", "address=10.7.0.1,as=65000,password-file=/etc/weir/bgp,bfd=100ms", "--peer", "address=fd00:7::1,as=65001")
	if err != nil {
		t.Fatal(err)
	}
	if s.bgp.NextHop4 != addr("10.7.0.9") || s.bgp.NextHop6 != addr("fd00:7::9") || s.bgp.RouterID != addr("10.7.0.9") || s.link.MTU != 1500 {
		t.Errorf("settings %+v", s)
	}
	peers := []bgp.Peer{
		{Address: addr("10.7.0.1"), AS: 65000, PasswordFile: "/etc/weir/bgp", BFD: 100 * time.Millisecond},
		{Address: addr("fd00:7::1"), AS: 65001},
	}
	if fmt.Sprint(s.bgp.Peers) != fmt.Sprint(peers) {
		t.Errorf("peers %v, want %v", s.bgp.Peers, peers)
	}
	if fmt.Sprint(s.aggregates) != "[203.0.113.0/24]" {
		t.Errorf("aggregates %v", s.aggregates)
	}
	s, err = read("10.7.0.9", "--nat-prefix4", "10.66.0.1/24", "--nat-prefix6", "fd66::/112")
	if err != nil || fmt.Sprint(s.natPrefixes) != "[10.66.0.0/24 fd66::/112]" {
		t.Errorf("settings %+v, error %v", s, err)
	}
	s, err = read("fd00:7::9", "--source4", "192.0.2.9", "--router-id", "192.0.2.1")
	if err != nil || s.bgp.NextHop4 != addr("192.0.2.9") || s.bgp.RouterID != addr("192.0.2.1") {
		t.Errorf("settings %+v, error %v", s, err)
	}
}

func TestBadOptionsAreNamed(t *testing.T) {
	const both = "10.7.0.9 fd00:7::9"
	peer := "address=10.7.0.1,as=65000"
	cases := []struct{ addresses, args, want string }{
		{both, "--name Mux_1", "read --name: must be a DNS label"},
		{both, "--interface=", "read --interface: is missing"},
		{both, "--interface eth9", "read --interface: interface eth9 not found; this machine has: eth0, lo"},
		{both, "--xdp-mode fast", `read --xdp-mode: must be auto, native or generic, is "fast"`},
		{both, "--drain-time -1s", "read --drain-time: must not be negative"},
		{both, "--syn-flood-min-rate 0", "must be at least 1"},
		{both, "--syn-flood-min-rate 10 --syn-flood-max-rate 9", "at most the other: 10, 9"},
		{both, "--max-flows -1", "--max-source-prefixes and --max-nat-sessions: must not be negative"},
		{both, "--nat-prefix4 fd66::/112", "read --nat-prefix4: must be a routable prefix of that family, at least /10 long"},
		{both, "--nat-prefix6 fd66::/64", "read --nat-prefix6: must be a routable prefix of that family, at least /106 long"},
		{both, "--nat-prefix4 10.66.0.1/32", "10.66.0.1/32 has addresses and ports for 32768 sessions, and --max-nat-sessions is 65536"},
		{both, "--nat-prefix4 10.66.0.0/24 --max-nat-sessions 0", "read --max-nat-sessions: must be at least 1 with --nat-prefix4"},
		{both, "--announce some", `read --announce: must be vip or aggregate, is "some"`},
		{both, "--announce aggregate", "aggregate needs at least one --aggregate"},
		{both, "--aggregate 203.0.113.0/24", "read --aggregate: has no effect without --announce aggregate"},
		{both, "--announce aggregate --aggregate 203.0.113.0", "read --aggregate: must be a prefix"},
		{both, "--source4 fd00::1", "read --source4: must be a routable address of that family"},
		{both, "--source6 fe80::1", "read --source6: must be a routable address of that family"},
		{"fe80::1", "", "interface eth0 has no routable address"},
		{both, "--peer " + peer, "read --as: is missing"},
		{"fd00:7::9", "--as 1 --peer " + peer, "read --router-id: is missing"},
		{both, "--as 1 --router-id x --peer " + peer, "read --router-id: must be an IPv4 address"},
		{both, "--as 1 --peer address=router,as=1", `address must be an IP address, is "router"`},
		{both, "--as 1 --peer address=10.7.0.1,as=x", `as must be a number from 1 to 4294967295, is "x"`},
		{both, "--as 1 --peer address=10.7.0.1", "address and as are required"},
		{both, "--as 1 --peer " + peer + ",bfd=fast", `bfd must be an interval such as 100ms, is "fast"`},
		{both, "--as 1 --peer " + peer + ",pasword=x", `unknown field "pasword": fields are address, as, password-file, bfd`},
	}
	for _, c := range cases {
		_, err := read(c.addresses, strings.Fields(c.args)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want it to say %q", c.args, err, c.want)
		}
	}
}
