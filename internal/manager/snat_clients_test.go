package manager

import (
	"net/netip"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// mayLeave says whether the host has a backend, and lets connections of a client to it leave the muxes.
func (h *fakeHost) mayLeave(client string) (may, there bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range h.backends {
		return b.MayLeave(netip.MustParseAddr(client)), true
	}
	return false, false
}

// TestPrefixListsReachWhatHasLeft changes lists of either kind that an endpoint names: the host of its backend, which ends connections that have
// left, hears of what is in the sources of the VIP's fastpath.
func TestPrefixListsReachWhatHasLeft(t *testing.T) {
	url, _ := start(t, Config{})
	client := dial(t, url)
	host := startHost(t, url, "host1", "10.2.1.2", "fd02::2")
	eventually(t, "the host is there", func() bool { return len(nodesOf(t, client)) == 1 })
	for _, c := range []struct{ name, vip, workload, source, one, other string }{
		{"four", "203.0.113.10", "10.3.1.10", "198.51.0.0/16", "198.51.0.7", "198.51.0.8"},
		{"six", "2001:db8:1::10", "fd03::10", "2001:db8:2::/64", "2001:db8:2::7", "2001:db8:2::8"},
	} {
		holds := func(what string, one, other bool) {
			t.Helper()
			eventually(t, c.name+": "+what, func() bool {
				first, there := host.mayLeave(c.one)
				second, _ := host.mayLeave(c.other)
				return there && first == one && second == other
			})
		}
		change := func(name string, add, remove []string) {
			t.Helper()
			if _, err := client.ChangePrefixList(t.Context(), &weirv1.ChangePrefixListRequest{Name: name, Add: add, Remove: remove}); err != nil {
				t.Fatal(err)
			}
		}
		var many []string // of which hosts are told the half
		for i := range 2 * model.MaxSources {
			many = append(many, nth(c.source, i).String())
		}
		applyAll(t, client, &weirv1.ApplyVIPsRequest{
			PrefixLists: []*weirv1.PrefixList{long("blocked", 5000), {Name: "friends", Prefixes: []string{c.source}}},
			Vips: []*weirv1.VIP{{
				Name: c.name, Address: c.vip, Fastpath: &weirv1.Fastpath{Sources: []string{c.source}},
				Endpoints: []*weirv1.Endpoint{{
					Protocol: "TCP", Port: 80, AllowLists: []string{"friends"}, DenyLists: []string{"blocked"},
					Backends: []*weirv1.Backend{{Address: c.workload, Port: 80, Host: "host1"}},
				}},
			}},
		})
		holds("both may leave", true, true)
		change("blocked", []string{c.one}, nil)
		holds("one is denied", false, true)
		change("friends", []string{c.one}, []string{c.source})
		holds("the other is not allowed any more", false, false)
		change("blocked", nil, []string{c.one})
		holds("one is not denied any more", true, false)
		change("friends", []string{c.source}, nil)
		change("blocked", many, nil)
		holds("too many are denied", false, false)
		change("blocked", nil, many)
		holds("few are", true, true)
		if _, err := client.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: c.name}); err != nil {
			t.Fatal(err)
		}
		eventually(t, c.name+": it has gone", func() bool { _, there := host.mayLeave(c.one); return !there })
	}
}

// nth is an address of a prefix that has room for it.
func nth(prefix string, n int) netip.Addr {
	a := netip.MustParsePrefix(prefix).Addr()
	if raw := a.As16(); !a.Is4() {
		raw[14], raw[15] = byte((n+16)>>8), byte(n+16)
		return netip.AddrFrom16(raw)
	}
	raw := a.As4()
	raw[2], raw[3] = raw[2]+byte((n+16)>>8), byte(n+16)
	return netip.AddrFrom4(raw)
}
