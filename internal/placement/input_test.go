package placement

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// What can't be meant is an error that names its place.
func TestBadInputIsRefused(t *testing.T) {
	f := pair(t)
	var enormous []traffic.Demand
	for i := range 20 {
		enormous = append(enormous, demand(fmt.Sprint("v", i), 9e11, 1))
	}
	from := func(rack int32, rate traffic.Rate) []traffic.Demand {
		return []traffic.Demand{{VIP: "a", Sources: []traffic.Share{{Rack: rack, Rate: rate}}, Backends: []traffic.Group{{Rack: 0, Backends: 1}}}}
	}
	for name, test := range map[string]struct {
		demands []traffic.Demand
		policy  Policy
		want    string
	}{
		"negative":            {[]traffic.Demand{demand("a", -1, 1)}, Policy{}, `vip "a": -1 kbit/s from outside`},
		"least":               {from(0, math.MinInt64), Policy{}, `vip "a": -9223372036854775808 kbit/s from rack`},
		"enormous":            {from(0, math.MaxInt64), Policy{}, `vip "a": 9223372036854775807 kbit/s from rack`},
		"enormous together":   {enormous, Policy{}, `vip "v1": with it, demands are above 1000000000000 kbit/s together`},
		"unknown rack":        {from(2, 1), Policy{}, `vip "a": source rack 2: the fabric has racks 0 to 1`},
		"negative rack":       {from(-1, 1), Policy{}, `vip "a": source rack -1`},
		"unknown switch":      {from(0, 1), Policy{Exclude: []string{"spine"}}, `exclude: there is no switch "spine"`},
		"delta is no number":  {from(0, 1), Policy{Algorithm: Sticky, Delta: math.NaN()}, "delta NaN"},
		"negative budget":     {from(0, 1), Policy{FailureBudget: -1}, "failure budget of -1 millionths"},
		"budget above all":    {from(0, 1), Policy{FailureBudget: math.MaxInt64}, "failure budget of 9223372036854775807"},
		"pin to leaf and one": {from(0, 1), Policy{VIPs: map[string]VIPPolicy{"a": {Pin: []string{"tor-1-1", "core-1"}}}}, `switch "tor-1-1" has racks below`},
	} {
		if _, err := Place(context.Background(), f, test.demands, nil, test.policy); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}

// What is extreme has a defined result.
func TestExtremeInputHasAResult(t *testing.T) {
	full := func(change func(*fabric.Spec)) *fabric.Fabric {
		t.Helper()
		spec, err := fabric.Clos{Containers: 1, TorsPerContainer: 2, Cores: 2, TorUplink: 10e6}.Spec()
		if err != nil {
			t.Fatal(err)
		}
		change(&spec)
		f, err := fabric.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	all := []traffic.Demand{demand("all", traffic.MaxRate, 1), demand("idle", 0, 1)}
	for name, test := range map[string]struct {
		f      *fabric.Fabric
		placed int
		reason string // of the VIP of all traffic
	}{
		"a VIP of all traffic": {full(func(*fabric.Spec) {}), 1, "link "},
		"no room on any link": {full(func(s *fabric.Spec) {
			for i := range s.Links {
				s.Links[i].Background, s.Links[i].BackgroundBack = 10e6, 10e6 // above the usable share
			}
		}), 1, "link "},
		"tables of size 0": {full(func(s *fabric.Spec) {
			for i := range s.Switches {
				s.Switches[i].Limits = &fabric.Limits{Hosts: 10}
			}
		}), 0, "tunnel table of "},
		"no route": {full(func(s *fabric.Spec) { s.Switches[0].Limits = &fabric.Limits{ECMP: 9, Tunnels: 9} }), 0, "host tables: "},
	} {
		for algorithm := range algorithms {
			r := place(t, test.f, all, Where{"all": {"gone"}}, Policy{Algorithm: Algorithm(algorithm), Spread: Twins})
			if Algorithm(algorithm) == Keep {
				continue // it places nothing that has no place
			}
			if len(r.Placed) != test.placed || r.Unplaced[0].VIP != "all" || !strings.HasPrefix(r.Unplaced[0].Reason, test.reason) {
				t.Errorf("%s, %v: placed %v, unplaced %+v", name, Algorithm(algorithm), r.Placed, r.Unplaced)
			}
		}
	}
	if r := place(t, pair(t), nil, nil, Policy{}); len(r.Placed)+len(r.Unplaced)+len(r.HotLinks) != 0 || r.Highest != 0 {
		t.Errorf("no demand: %+v", r)
	}
}
