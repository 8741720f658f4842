package fabric

import "testing"

func TestUneven(t *testing.T) {
	spec, err := Clos{Containers: 2, TorsPerContainer: 2, AggsPerContainer: 2, Cores: 4, TorUplink: 1000, AggUplink: 1000}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		set  []string
		want string
	}{
		{[]string{"core-1", "core-2", "core-3", "core-4"}, ""},
		{[]string{"core-1", "core-3"}, ""},
		{[]string{"agg-1-1", "agg-1-2"}, ""},
		{[]string{"agg-1-1"}, ""},
		{[]string{"tor-1-1", "tor-1-2"}, "hosts below tor-1-1 reach it before the others"},
		{[]string{"agg-1-1", "core-1"}, "packets from outside do not reach all alike"},
		{[]string{"agg-1-1", "agg-2-2"}, "packets of rack rack-1-1 do not reach all alike"},
		{[]string{"agg-1-1", "elsewhere"}, ""},
	} {
		if got := f.Uneven(c.set); got != c.want {
			t.Errorf("%v: %q, want %q", c.set, got, c.want)
		}
	}
}
