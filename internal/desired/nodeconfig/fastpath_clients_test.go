package nodeconfig

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// Connections may leave the muxes that those of the sources open whom the endpoint's lists take.
func TestFastpathClients(t *testing.T) {
	prefixes := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	for _, c := range []struct {
		name                 string
		sources, allow, deny []netip.Prefix
		leave, stay          []netip.Prefix
		mayLeave, mayNot     string
	}{
		{name: "no lists", sources: prefixes("203.0.113.0/28"), leave: prefixes("203.0.113.0/28"), mayLeave: "203.0.113.3", mayNot: "203.0.113.16"},
		{
			name: "allowed in part", sources: prefixes("203.0.113.0/28"), allow: prefixes("198.51.100.0/24", "203.0.113.4/30"),
			leave: prefixes("203.0.113.4/30"), mayLeave: "203.0.113.5", mayNot: "203.0.113.3",
		},
		{
			name: "all allowed", sources: prefixes("203.0.113.0/28"), allow: prefixes("203.0.0.0/16", "0.0.0.0/0"),
			leave: prefixes("203.0.113.0/28"), mayLeave: "203.0.113.15", mayNot: "203.0.113.16",
		},
		{name: "others allowed", sources: prefixes("203.0.113.0/28"), allow: prefixes("198.51.100.0/24"), mayNot: "203.0.113.3"},
		{
			name: "denied in part", sources: prefixes("203.0.113.0/28"), deny: prefixes("198.51.100.0/24", "203.0.113.7/32"),
			leave: prefixes("203.0.113.0/28"), stay: prefixes("203.0.113.7/32"), mayLeave: "203.0.113.6", mayNot: "203.0.113.7",
		},
		{
			name: "all denied", sources: prefixes("203.0.113.0/28"), deny: prefixes("0.0.0.0/0"),
			leave: prefixes("203.0.113.0/28"), stay: prefixes("0.0.0.0/0"), mayNot: "203.0.113.3",
		},
	} {
		leave, stay := fastpathClients(desired.PrefixLists{}, &model.Fastpath{Sources: c.sources}, model.Endpoint{Allow: c.allow, Deny: c.deny})
		if !slices.Equal(leave, c.leave) || !slices.Equal(stay, c.stay) {
			t.Errorf("%s: %v but for %v leave, want %v but for %v", c.name, leave, stay, c.leave, c.stay)
		}
		b := model.HostBackend{Fastpath: len(leave) > 0, Leave: leave, Stay: stay}
		if c.mayLeave != "" && !b.MayLeave(netip.MustParseAddr(c.mayLeave)) {
			t.Errorf("%s: %s may not leave", c.name, c.mayLeave)
		}
		if b.MayLeave(netip.MustParseAddr(c.mayNot)) {
			t.Errorf("%s: %s may leave", c.name, c.mayNot)
		}
	}
}

// draw is some prefixes of a small network, which a few addresses tell apart.
func draw(r *rand.Rand, six bool, most int) []netip.Prefix {
	var all []netip.Prefix
	for range r.IntN(most + 1) {
		a := netip.AddrFrom4([4]byte{203, 0, 113, byte(r.IntN(64))})
		bits := 24 + r.IntN(9)
		if six {
			a = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(r.IntN(64))})
			bits = 120 + r.IntN(9)
		}
		all = append(all, netip.PrefixFrom(a, bits).Masked())
	}
	return all
}

// Whose connections leave is whom the fastpath and all lists of the endpoint take, whichever of them change.
func TestPrefixListsDecideWhoLeaves(t *testing.T) {
	for seed := range uint64(3000) {
		r, six := rand.New(rand.NewPCG(seed, 5)), seed%2 == 1
		var lists desired.PrefixLists
		for _, name := range []string{"a", "b", "c", "d"} {
			lists.Set(name, model.PrefixList{Name: name, Prefixes: model.NewPrefixSet(slices.Concat(draw(r, six, 5), draw(r, !six, 2)))})
		}
		f := &model.Fastpath{Sources: append(draw(r, six, 2), draw(r, six, 1)...)}
		e := model.Endpoint{Allow: draw(r, six, 2), Deny: draw(r, six, 2)}
		for i, name := range []string{"a", "b", "c", "d"} {
			switch r.IntN(3) {
			case 0:
				e.AllowLists = append(e.AllowLists, name)
			case 1:
				e.DenyLists = append(e.DenyLists, name)
			}
			if i%2 == 0 && r.IntN(2) == 0 { // not all have allow lists
				e.AllowLists = nil
			}
		}
		leave, stay := fastpathClients(lists, f, e)
		b := model.HostBackend{Fastpath: len(leave) > 0, Leave: leave, Stay: stay}
		for n := range 256 {
			client := netip.AddrFrom4([4]byte{203, 0, 113, byte(n)})
			if six {
				client = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(n)})
			}
			want := f.Takes(client) && e.Takes(client, lists.Prefixes)
			if got := b.MayLeave(client); got != want {
				t.Fatalf("seed %d: %s may leave is %t, want %t: sources %v, %+v, hosts are told %v but for %v", seed, client, got, want, f.Sources, e, leave, stay)
			}
		}
	}
}

// A list may be as long as it likes outside of the sources. In them, hosts are told of 4096 prefixes at most: with more no
// connection leaves, in place of one that must not.
func TestHowLongListsOfSNATClientsAre(t *testing.T) {
	sources := map[string]string{"IPv4": "10.0.0.0/16", "IPv6": "2001:db8::/48"}
	at := map[string]func(n int) netip.Prefix{
		"IPv4": func(n int) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 32)
		},
		"IPv6": func(n int) netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 4: 0, 5: byte(n >> 16), 6: byte(n >> 8), 7: byte(n)}), 64)
		},
	}
	for family, source := range sources {
		outside := make([]netip.Prefix, 0, 200_000)
		for n := range cap(outside) {
			outside = append(outside, at[family](1<<16+n))
		}
		for _, within := range []int{0, 1, model.MaxSources, model.MaxSources + 1, 3 * model.MaxSources} {
			all := outside
			for n := range within {
				all = append(all, at[family](2*n))
			}
			set := model.NewPrefixSet(all)
			var lists desired.PrefixLists
			lists.Set("long", model.PrefixList{Name: "long", Prefixes: set})
			f := &model.Fastpath{Sources: []netip.Prefix{netip.MustParsePrefix(source)}}
			denied, _ := fastpathClients(lists, f, model.Endpoint{DenyLists: []string{"long"}})
			allowed, _ := fastpathClients(lists, f, model.Endpoint{AllowLists: []string{"long"}})
			fits := within <= model.MaxSources
			if (len(denied) > 0) != fits || (len(allowed) > 0) != (fits && within > 0) {
				t.Errorf("%s: with %d of %d prefixes in the sources, leave %s of who is not denied and %s of who is allowed",
					family, within, set.Len(), fmt.Sprint(len(denied)), fmt.Sprint(len(allowed)))
			}
		}
	}
}
