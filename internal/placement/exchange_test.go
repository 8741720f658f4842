package placement

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/weirlb/weir/internal/traffic"
)

// A VIP that finds no room gets some: others move together, or one with little traffic goes to software, unless too
// much traffic would move for it.
func TestExchangesMakeRoom(t *testing.T) {
	f := pair(t)
	halves := Where{"x": {"core-1"}, "y": {"core-2"}}
	for name, test := range map[string]struct {
		demands []traffic.Demand
		current Where
		want    []string // VIPs on switches
		moves   bool     // of them some from where they were
	}{
		"from scratch":        {[]traffic.Demand{demand("x", 1000, 5), demand("y", 900, 5), demand("z", 800, 10)}, nil, []string{"x", "y", "z"}, false},
		"a move for its gain": {[]traffic.Demand{demand("x", 1000, 5), demand("y", 900, 5), demand("z", 800, 10)}, halves, []string{"x", "y", "z"}, true},
		"too much would move": {[]traffic.Demand{demand("x", 1000, 5), demand("y", 900, 5), demand("z", 100, 10)}, halves, []string{"x", "y"}, false},
		"little goes":         {[]traffic.Demand{demand("x", 500, 10), demand("y", 10, 10), demand("z", 1000, 10)}, halves, []string{"x", "z"}, false},
		"much stays":          {[]traffic.Demand{demand("x", 500, 10), demand("y", 950, 10), demand("z", 1000, 10)}, halves, []string{"y", "z"}, false},
		"nothing gained":      {[]traffic.Demand{demand("x", 500, 10), demand("y", 500, 10), demand("z", 500, 10)}, halves, []string{"x", "y"}, false},
	} {
		policy := Policy{Exclude: []string{"tor-1-1", "tor-1-2"}}
		result, err := Place(t.Context(), f, test.demands, test.current, policy)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		moves := false
		where := result.Where(f)
		for _, p := range result.Placed {
			got = append(got, p.VIP)
			moves = moves || test.current[p.VIP] != nil && !reflect.DeepEqual(test.current[p.VIP], where[p.VIP])
		}
		if !reflect.DeepEqual(got, test.want) || moves != test.moves {
			t.Errorf("%s: placed %v, want %v of them", name, where, test.want)
		}
		for _, u := range result.Unplaced {
			if u.Resource != SwitchTable {
				t.Errorf("%s: vip %s is unplaced for %q: %s", name, u.VIP, u.Resource, u.Reason)
			}
		}
	}
}

// An exchange ends at once when its caller does.
func TestExchangesEndWithTheirCaller(t *testing.T) {
	f := pair(t)
	var demands []traffic.Demand
	for i := range 5 {
		demands = append(demands, demand(fmt.Sprint("v", i), 1000, 10))
	}
	e, items, err := prepare(t.Context(), f, demands, nil, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	e.before = func(it *item) {
		if it == items[len(items)-1] { // no other check of the context follows
			cancel()
		}
	}
	if err := e.run(ctx, items); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that it is canceled", err)
	}
}

// lookedAt is a context that ends when it is looked at for the n-th time.
type lookedAt struct {
	context.Context
	n int
}

func (c *lookedAt) Err() error {
	if c.n--; c.n < 0 {
		return context.Canceled
	}
	return nil
}

// A placement ends wherever its caller does: on large networks the routes of candidates alone take long.
func TestPlaceEndsWithItsCaller(t *testing.T) {
	f := pair(t)
	demands := []traffic.Demand{demand("x", 1000, 5), demand("y", 900, 5), demand("z", 800, 10)}
	looks := 0
	for ; looks < 1000; looks++ {
		_, err := Place(&lookedAt{t.Context(), looks}, f, demands, nil, Policy{ExchangeWork: 1000})
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if candidates := len(Candidates(f, One)); looks < 2*candidates { // each for its routes and for its estimate
		t.Errorf("the context is looked at %d times for %d candidates", looks, candidates)
	}
}
