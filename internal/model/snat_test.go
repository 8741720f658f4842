package model

import (
	"net/netip"
	"reflect"
	"testing"
)

// Each field counts: what differs in one is told to nodes.
func TestSNATThatDiffers(t *testing.T) {
	address := netip.MustParseAddr("203.0.113.10")
	differs(t, MuxSNAT.Equal, []MuxSNAT{
		{Key: SNATKey{VIP: address}}, {Tunnel: address}, {Ranges: []Range{1}}, {Tenant: "acme"}, {Ping: true}, {Written: 1},
	})
	differs(t, HostSNAT.Equal, []HostSNAT{
		{Key: SNATKey{VIP: address}},
		{Tunnel: address},
		{Ranges: []Range{1}},
		{Reclaim: []Range{1}},
		{Except: []netip.Prefix{netip.PrefixFrom(address, 32)}},
		{Filtering: FilterNone},
		{Exhausted: ExhaustedDrop},
		{IdleTimeout: 1},
		{MaxPorts: 8},
		{KeepPorts: 8},
		{Written: 1},
		{Cluster: 1},
		{Tenant: "acme"},
	})
}

// differs holds that values, which have one field each, equal nothing but themselves.
func differs[T any](t *testing.T, equal func(a, b T) bool, values []T) {
	t.Helper()
	if fields := reflect.TypeFor[T]().NumField(); len(values) != fields {
		t.Errorf("%d values of a %T, which has %d fields", len(values), values[0], fields)
	}
	for i, a := range values {
		if reflect.ValueOf(a).Field(i).IsZero() {
			t.Errorf("value %d of a %T does not have its field", i, a)
		}
		for j, b := range values {
			if equal(a, b) != (i == j) {
				t.Errorf("%+v and %+v: equal %t", a, b, i != j)
			}
		}
	}
}
