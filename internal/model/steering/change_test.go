package steering

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

var address = netip.MustParseAddr("203.0.113.10")

func drawEndpoint(t *rapid.T, port uint16) Endpoint {
	slot := rapid.Map(rapid.IntRange(0, 3), func(n int) model.Slot { return model.Slot(n) })
	e := Endpoint{
		Key:     model.EndpointKey{VIP: address, Protocol: model.TCP, Port: port},
		Cookies: rapid.SampledFrom([]model.Cookies{model.CookiesOff, model.CookiesOn}).Draw(t, "cookies"),
	}
	if bits := rapid.IntRange(-1, 5).Draw(t, "bits"); bits >= 0 {
		e.Buckets = rapid.SliceOfN(slot, 1<<bits, 1<<bits).Draw(t, "buckets")
		if rapid.Bool().Draw(t, "moved") {
			e.Previous = rapid.SliceOfN(slot, 1<<bits, 1<<bits).Draw(t, "previous")
		}
	}
	for slot := range rapid.IntRange(0, 3).Draw(t, "backends") {
		e.Backends = append(e.Backends, Backend{Slot: model.Slot(slot + 1), Tunnel: address, Down: rapid.Bool().Draw(t, "down")})
	}
	return e
}

// follows draws what an endpoint may be next: a few buckets differ, or all.
func follows(t *rapid.T, e Endpoint) Endpoint {
	if len(e.Buckets) == 0 || rapid.Bool().Draw(t, "anew") {
		return drawEndpoint(t, e.Key.Port)
	}
	e.Buckets = append([]model.Slot(nil), e.Buckets...)
	e.Buckets[rapid.IntRange(0, len(e.Buckets)-1).Draw(t, "bucket")] = 3
	return e
}

// TestUpdatesLeadToWhatIs applies what differs, over several steps: the host then has what the manager has.
func TestUpdatesLeadToWhatIs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		manager, host := map[netip.Addr]VIP{}, map[netip.Addr]VIP{}
		for range 5 {
			next := map[netip.Addr]VIP{}
			if rapid.IntRange(0, 4).Draw(t, "there") > 0 {
				vip := VIP{Address: address, Switches: manager[address].Switches, Ping: rapid.Bool().Draw(t, "ping"), ByHost: rapid.Bool().Draw(t, "byHost")}
				if rapid.Bool().Draw(t, "switches") {
					vip.Switches = []netip.Addr{netip.AddrFrom4([4]byte{10, 9, 0, byte(rapid.IntRange(1, 3).Draw(t, "switch"))})}
				}
				for _, port := range []uint16{80, 443} {
					was, had := manager[address].endpoint(model.EndpointKey{VIP: address, Protocol: model.TCP, Port: port})
					switch {
					case rapid.IntRange(0, 3).Draw(t, "gone") == 0:
					case had && rapid.Bool().Draw(t, "same"):
						vip.Endpoints = append(vip.Endpoints, was)
					case had:
						vip.Endpoints = append(vip.Endpoints, follows(t, was))
					default:
						vip.Endpoints = append(vip.Endpoints, drawEndpoint(t, port))
					}
				}
				next[address] = vip
			}
			update := Diff(manager, next)
			after, err := Apply(host, update)
			if err != nil {
				t.Fatal(err)
			}
			manager, host = next, after
			if rest := Diff(manager, host); !rest.IsEmpty() {
				t.Fatalf("the host differs by %+v", rest)
			}
		}
	})
}

// TestLocalsHaveTheirShares has backends that are here, as often as buckets name them, as far as there is room.
func TestLocalsHaveTheirShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEndpoint(t, 80)
		e.Buckets = rapid.SliceOfN(rapid.SampledFrom([]model.Slot{0, 1, 2, 3}), 256, 256).Draw(t, "many")
		far := model.Slot(rapid.IntRange(1, 4).Draw(t, "far"))
		for i := range e.Backends {
			e.Backends[i].Tunnel = netip.AddrFrom4([4]byte{10, 0, 0, byte(e.Backends[i].Slot)})
		}
		here := func(tunnel netip.Addr) bool { return tunnel.As4()[3] != byte(far) }
		shares, all := map[model.Slot]int{}, 0
		for _, slot := range e.Buckets {
			if e.Lives(slot) && slot != far {
				shares[slot]++
				all++
			}
		}
		locals, counts := e.Locals(here), map[model.Slot]int{}
		for _, slot := range locals {
			counts[slot]++
		}
		if len(locals) != min(all, MaxLocals) {
			t.Fatalf("%d locals of %d buckets", len(locals), all)
		}
		for slot := range model.Slot(5) {
			if all == 0 {
				continue
			}
			if off := float64(counts[slot]) - float64(shares[slot]*len(locals))/float64(all); off < -1 || off > 1 {
				t.Errorf("slot %d is %d of %d locals, has %d of %d buckets", slot, counts[slot], len(locals), shares[slot], all)
			}
		}
	})
}

// TestDrainsAreShort sends the buckets that move, and not what stays.
func TestDrainsAreShort(t *testing.T) {
	e := Endpoint{Key: model.EndpointKey{VIP: address, Protocol: model.TCP, Port: 80}, Buckets: make([]model.Slot, 65536), Backends: []Backend{{Slot: 1, Tunnel: address}}}
	drained := e
	drained.Buckets = append([]model.Slot(nil), e.Buckets...)
	drained.Buckets[77] = 1
	vips := func(e Endpoint) map[netip.Addr]VIP {
		return map[netip.Addr]VIP{address: {Address: address, Endpoints: []Endpoint{e}}}
	}
	u := Diff(vips(e), vips(drained))
	c := u.Changed[0]
	if !c.KeepsSources || len(c.Endpoints) != 1 || !c.Endpoints[0].KeepsBackends || !c.Endpoints[0].KeepsBuckets || len(c.Endpoints[0].Moves) != 1 {
		t.Errorf("sends %+v", c)
	}
}

// TestWhatCantFollowIsRefused gives updates that are none of Diff's.
func TestWhatCantFollowIsRefused(t *testing.T) {
	key := model.EndpointKey{VIP: address, Protocol: model.TCP, Port: 80}
	for what, e := range map[string]EndpointChange{
		"a bucket beyond":         {Endpoint: Endpoint{Key: key}, KeepsBuckets: true, Moves: []Move{{Bucket: 1, Slot: 1}}},
		"three buckets":           {Endpoint: Endpoint{Key: key, Buckets: make([]model.Slot, 3)}},
		"slots in no order":       {Endpoint: Endpoint{Key: key, Backends: []Backend{{Slot: 2}, {Slot: 1}}}},
		"previous of some":        {Endpoint: Endpoint{Key: key, Buckets: make([]model.Slot, 4), Previous: make([]model.Slot, 2)}},
		"a slot that is none":     {Endpoint: Endpoint{Key: key, Buckets: []model.Slot{9000}}},
		"an endpoint of another":  {Endpoint: Endpoint{Key: model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.11")}}},
		"more buckets than there": {Endpoint: Endpoint{Key: key, Buckets: make([]model.Slot, 2*MaxBuckets)}},
	} {
		if _, err := Apply(nil, Update{Changed: []Change{{Address: address, Endpoints: []EndpointChange{e}}}}); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
