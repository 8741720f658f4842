package fabric

import (
	"net/netip"
	"strings"
	"testing"
)

// withPrefixes is three racks of a small fabric with prefixes.
func withPrefixes(t *testing.T, prefixes ...string) (*Fabric, error) {
	t.Helper()
	spec, err := Clos{Containers: 1, TorsPerContainer: 3, AggsPerContainer: 1, Cores: 1, TorUplink: 1e6, AggUplink: 1e6}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	for i, list := range prefixes {
		for text := range strings.FieldsSeq(list) {
			spec.Racks[i].Prefixes = append(spec.Racks[i].Prefixes, netip.MustParsePrefix(text))
		}
	}
	return New(spec)
}

func TestRackOfAddress(t *testing.T) {
	f, err := withPrefixes(t, "10.0.0.0/8 fd00:1::/64", "10.1.2.0/24 10.1.3.4/32", "10.1.0.0/16 ::/0")
	if err != nil {
		t.Fatal(err)
	}
	left, racks, err := f.Without(nil, nil)
	if err != nil || !left.HasPrefixes() || racks[1] != 1 {
		t.Fatalf("with no failure: racks %v, %v", racks, err)
	}
	for address, want := range map[string]int32{
		"10.1.2.3": 1, "10.1.3.4": 1, "10.1.3.5": 2, "10.2.0.1": 0, "::ffff:10.2.0.1": 0, "fd00:1::5": 0, "fd00:2::5": 2, "fd00:1::5%eth0": 0,
		"11.0.0.1": -1,
	} {
		for _, of := range []*Fabric{f, left} {
			if rack, ok := of.RackOf(netip.MustParseAddr(address)); ok != (want >= 0) || ok && rack != want {
				t.Errorf("%s is in rack %d, %t, want %d", address, rack, ok, want)
			}
		}
	}
	if _, ok := f.RackOf(netip.Addr{}); ok {
		t.Error("no address is in a rack")
	}
	bare, err := withPrefixes(t)
	if _, ok := bare.RackOf(netip.MustParseAddr("10.0.0.1")); err != nil || ok || bare.HasPrefixes() {
		t.Errorf("a fabric without prefixes has some: %v", err)
	}
}

func TestPrefixOfTwoRacksIsRefused(t *testing.T) {
	_, err := withPrefixes(t, "10.0.0.0/8", "10.1.0.0/16 10.0.0.1/8")
	const want = `racks "rack-1-1" and "rack-1-2" both have prefix 10.0.0.0/8: remove it from one`
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}
