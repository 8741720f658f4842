package mux

import (
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// Two muxes that came to the same tables by other ways have the same digests, and any difference shows.
func TestDigestIsOfTheTables(t *testing.T) {
	digests := func(d *Datapath) map[model.EndpointKey]string {
		status, err := status(&d.tables)
		if err != nil {
			t.Fatal(err)
		}
		all := map[model.EndpointKey]string{}
		for _, e := range status.Endpoints {
			all[e.Key] = e.Digest
		}
		return all
	}
	one := newEndpoint("203.0.113.10:80", model.TCP, "10.2.1.1", "10.2.2.1", "10.2.3.1")
	two := newEndpoint("203.0.113.11:80", model.TCP, "10.2.1.1")
	want := digests(newFilled(t, one, two))
	again := newFilled(t, two)
	if err := again.Apply([]model.MuxEndpoint{one}, nil); err != nil {
		t.Fatal(err)
	}
	if got := digests(again); got[one.Key] != want[one.Key] || got[two.Key] != want[two.Key] || got[one.Key] == got[two.Key] {
		t.Errorf("digests %v, want %v", got, want)
	}
	for name, change := range map[string]func(*model.MuxEndpoint){
		"a bucket":           func(e *model.MuxEndpoint) { e.Buckets[7] = e.Buckets[8] },
		"a bucket's move":    func(e *model.MuxEndpoint) { e.Previous = make([]model.Slot, len(e.Buckets)); e.Previous[7] = 3 },
		"a tunnel":           func(e *model.MuxEndpoint) { e.Backends[1].Tunnel = e.Backends[1].Tunnel.Next() },
		"a backend is down":  func(e *model.MuxEndpoint) { e.Backends[2].Down = true },
		"the endpoint's use": func(e *model.MuxEndpoint) { e.Cookies = model.CookiesOn },
	} {
		changed := one
		changed.Buckets, changed.Backends = slices.Clone(one.Buckets), slices.Clone(one.Backends)
		change(&changed)
		if got := digests(newFilled(t, changed)); got[one.Key] == want[one.Key] {
			t.Errorf("%s does not change the digest", name)
		}
	}
}
