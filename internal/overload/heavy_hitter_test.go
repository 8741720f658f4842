package overload

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func testVIP(n byte) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, n}) }

func TestEvidenceNamesTheBusiest(t *testing.T) {
	from := netip.MustParsePrefix("198.51.100.0/24")
	demands := []Demand{
		{VIP: testVIP(1), Offered: Rate{Packets: 200}},
		{VIP: testVIP(2), Offered: Rate{Packets: 800}, Sources: []SourceShare{{from, 0.7}}},
		{VIP: testVIP(3), Offered: Rate{Packets: 0.5}},
		{VIP: testVIP(4), Offered: Rate{Packets: 0.5}},
		{VIP: testVIP(9)},
	}
	busy := HeavyHitters(demands)
	if len(busy) != heavyHitters || busy[0].VIP != testVIP(2) || busy[0].Packets != 800 || busy[1].VIP != testVIP(1) || busy[2].VIP != testVIP(3) {
		t.Fatalf("the busiest are %+v", busy)
	}
	line := State{Overloaded: true, Lost: 1234.5, Share: 0.05, SoftIRQ: 0.99}.Evidence(busy[:2], 1)
	want := "overloaded: 1234 packets a second are lost before the program sees them (5.0 % of all), softirqs take 99 % of the busiest CPU" +
		"; VIPs that are held to their share: 1" +
		"; most came for 203.0.113.2: 800 a second, 80 % (70 % from 198.51.100.0/24), then 203.0.113.1: 200 a second, 20 %"
	if line != want {
		t.Errorf("got  %s\nwant %s", line, want)
	}
	if line := (State{}).Evidence(nil, 0); strings.Contains(line, "most") || strings.Contains(line, "share") {
		t.Errorf("nobody is named as %s", line)
	}
	why := Cut{All: 0.912, TenantShare: 0.25}.Evidence(Demand{Tenant: "acme", Offered: Rate{Packets: 811034, Bytes: 5e7}, Sources: busy[0].From})
	want = "the mux is overloaded and 811034 packets/s, 50000000 bytes/s come, more than tenant acme's share of 25.0 %: 91.2 % are dropped (70 % from 198.51.100.0/24)"
	if why != want {
		t.Errorf("got  %s\nwant %s", why, want)
	}
}

func TestPartsAreThoseThatCount(t *testing.T) {
	p := func(n byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, n, 0}), 24) }
	got, unnamed := SourceShares([]Source{{p(1), 1e5}, {p(2), 5e3}, {p(3), 3e5}}, 1e6)
	if want := []SourceShare{{p(3), 0.3}, {p(1), 0.1}}; !slices.Equal(got, want) || unnamed != leastPart {
		t.Errorf("parts are %v, want %v; others have at most %v", got, want, unnamed)
	}
	// Samples are about as many: no more than all can come from somewhere.
	if got, unnamed := SourceShares([]Source{{p(1), 1500}, {p(2), 500}}, 1000); got[0].Share != 0.75 || got[1].Share != 0.25 || unnamed != 0.256 {
		t.Errorf("parts are %v", got)
	}
}
