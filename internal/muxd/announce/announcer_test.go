package announce

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/bgp"
	"github.com/weirlb/weir/internal/model"
)

func vip(n byte) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, n}) }

func vips(numbers ...byte) map[netip.Addr]bool {
	set := map[netip.Addr]bool{}
	for _, n := range numbers {
		set[vip(n)] = true
	}
	return set
}

// rig is an Announcer with a speaker that has no IPv6 next hop.
type rig struct {
	t *testing.T
	*Announcer
	announced string
	discarded string // by the kernel
	attached  int    // VIPs that EVPN tells of
}

func newRig(t *testing.T, change func(*Config)) *rig {
	r := &rig{t: t, announced: "[]"}
	config := Config{Speaker: r, Log: slog.New(slog.DiscardHandler), Discard: func(prefixes []netip.Prefix) error {
		r.discarded = fmt.Sprint(prefixes)
		return nil
	}}
	if change != nil {
		change(&config)
	}
	r.Announcer = New(config)
	return r
}

func (r *rig) Announce(routes []bgp.Route) error {
	r.announced = fmt.Sprint(routes)
	for _, route := range routes {
		if route.Prefix.Addr().Is6() {
			return errors.Join(fmt.Errorf("announce %s: no next hop", route))
		}
	}
	return nil
}

func (r *rig) AnnounceMACs(routes []bgp.MACRoute) error {
	r.attached = len(routes)
	return nil
}

func (r *rig) holds(announced string) {
	r.t.Helper()
	if r.announced != announced {
		r.t.Errorf("announced %s, want %s", r.announced, announced)
	}
}

func (r *rig) warns(lines ...string) {
	r.t.Helper()
	if got := strings.Join(r.Warnings(), "\n"); got != strings.Join(lines, "\n") {
		r.t.Errorf("warnings:\n%s\nwant:\n%s", got, strings.Join(lines, "\n"))
	}
}

// A VIP is announced once each next hop was tried, and stays announced until no host at all can be reached.
func TestVIPsAreAnnouncedAsHostsAreReached(t *testing.T) {
	r := newRig(t, nil)
	r.Set(vips(10), Overlay{}, Reach{})
	r.holds("[]")
	r.Set(vips(10), Overlay{}, Reach{Tried: true})
	r.holds("[203.0.113.10/32]")
	r.Set(vips(10, 11), Overlay{}, Reach{})
	r.holds("[203.0.113.10/32]")
	if got := fmt.Sprint(r.Announced(vips(10, 11))); got != "map[203.0.113.10:true]" {
		t.Errorf("of both is announced %s", got)
	}
	r.Set(vips(10, 11), Overlay{}, Reach{Tried: true, None: true})
	r.holds("[]")
	r.warns("no host can be reached: no VIP is announced until one can")
	if r.discarded != "[203.0.113.10/32 203.0.113.11/32]" {
		t.Errorf("the kernel discards %s", r.discarded)
	}
	r.Set(vips(11), Overlay{}, Reach{Tried: true})
	r.holds("[203.0.113.11/32]")
	r.warns()
}

// NAT prefixes are announced as long as the mux forwards, also while it announces nothing else: answers come by them.
func TestNATPrefixesAreAnnouncedFirstAndWithdrawnLast(t *testing.T) {
	r := newRig(t, func(c *Config) { c.NATPrefixes = []netip.Prefix{netip.MustParsePrefix("10.66.0.0/24")} })
	r.Adopt(nil, nil)
	r.holds("[10.66.0.0/24]")
	r.Set(vips(10), Overlay{}, Reach{Tried: true})
	r.holds("[203.0.113.10/32 10.66.0.0/24]")
	if r.discarded != "[203.0.113.10/32 10.66.0.0/24]" {
		t.Errorf("the kernel discards %s", r.discarded)
	}
	r.SetExcluded(true)
	r.holds("[10.66.0.0/24]")
	r.SetExcluded(false)
	r.Set(vips(10), Overlay{}, Reach{Tried: true, None: true})
	r.holds("[10.66.0.0/24]")
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	r.holds("[10.66.0.0/24]")
	if err := r.End(); err != nil {
		t.Fatal(err)
	}
	r.Set(vips(10), Overlay{}, Reach{Tried: true})
	r.holds("[]")
}

// A mux out of the pool announces nothing; one that stops announces nothing ever after.
func TestExcludedAndStopped(t *testing.T) {
	r := newRig(t, nil)
	r.Adopt(vips(10), nil)
	r.holds("[203.0.113.10/32]")
	r.SetExcluded(true)
	r.holds("[]")
	if got := r.Warnings(); len(got) != 1 || !strings.HasPrefix(got[0], "out of the pool, as this mux did not answer") {
		t.Errorf("warnings %q", got)
	}
	r.Set(vips(10), Overlay{}, Reach{Tried: true})
	r.holds("[]")
	r.SetExcluded(false)
	r.holds("[203.0.113.10/32]")
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	r.Set(vips(10, 11), Overlay{}, Reach{Tried: true})
	r.holds("[]")
}

func TestAggregates(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.Aggregates = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/28"), netip.MustParsePrefix("203.0.113.16/28")}
	})
	r.Adopt(vips(10, 11, 99), nil)
	r.holds("[203.0.113.0/28]")
	r.warns("VIP 203.0.113.99 is not announced: no aggregate holds it")
	r.Set(vips(11), Overlay{}, Reach{})
	r.holds("[203.0.113.0/28]") // another VIP holds the aggregate
	r.Set(vips(), Overlay{}, Reach{})
	r.holds("[]")
}

// The addresses of virtual networks are announced as VIPs are, beside aggregates too, and withdrawn when asked.
func TestAddressesOfNetworksAreAnnounced(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Aggregates = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")} })
	lip := Overlay{
		Addresses: []netip.Addr{netip.MustParseAddr("10.255.0.1")},
		Attached:  []bgp.MACRoute{{VNI: 100, MAC: [6]byte{2}, Address: netip.MustParseAddr("10.99.0.1"), VTEP: netip.MustParseAddr("10.255.0.1")}},
	}
	holds := func(announced string, attached int) {
		t.Helper()
		if r.holds(announced); r.attached != attached {
			t.Errorf("EVPN tells of %d VIPs, want %d", r.attached, attached)
		}
	}
	r.Set(vips(10), lip, Reach{})
	holds("[]", 0)
	r.Set(vips(10), lip, Reach{Tried: true})
	holds("[203.0.113.0/24 10.255.0.1/32]", 1)
	if r.discarded != "[203.0.113.0/24 10.255.0.1/32]" {
		t.Errorf("the kernel drops what comes to %s", r.discarded)
	}
	r.Set(vips(10), lip, Reach{}) // a host is new
	holds("[203.0.113.0/24 10.255.0.1/32]", 1)
	r.SetExcluded(true)
	holds("[]", 0)
	r.SetExcluded(false)
	if r.WithdrawOverlay(lip) {
		t.Error("what is kept was withdrawn")
	}
	if !r.WithdrawOverlay(Overlay{Addresses: lip.Addresses}) {
		t.Error("no VIP was withdrawn")
	}
	holds("[203.0.113.0/24 10.255.0.1/32]", 0)
	if !r.WithdrawOverlay(Overlay{}) {
		t.Error("nothing was withdrawn")
	}
	holds("[203.0.113.0/24]", 0)
	if r.WithdrawOverlay(Overlay{}) {
		t.Error("it was withdrawn twice")
	}
	r.Set(vips(10), lip, Reach{Tried: true, None: true})
	r.holds("[]")
	r.Set(vips(), Overlay{}, Reach{Tried: true})
	r.Adopt(vips(), lip.Addresses)
	r.holds("[10.255.0.1/32]")
}

func TestErrorsAreWarnings(t *testing.T) {
	r := newRig(t, nil)
	r.Adopt(map[netip.Addr]bool{netip.MustParseAddr("2001:db8::10"): true}, nil)
	r.warns("announce 2001:db8::10/128: no next hop")
}

var (
	scrubbed = model.VIPRoute{
		VIP: vip(10), Action: model.ActionScrub, NextHop: netip.MustParseAddr("10.0.9.2"),
		Communities: []model.Community{{Admin: 64999, Value: 911}},
	}
	blackholed = model.VIPRoute{VIP: vip(11), Action: model.ActionBlackhole, Withdrawn: true}
)

// VIPs with an override are announced by it, also after a restart, and the kernel still discards their packets.
func TestOverridesOutliveARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data", "routes")
	start := func() *rig {
		r := newRig(t, func(c *Config) { c.OverridesFile = file })
		r.Adopt(vips(10, 11, 12), nil)
		return r
	}
	const usual = "[203.0.113.10/32 203.0.113.11/32 203.0.113.12/32]"
	const overridden = "[203.0.113.10/32 via 10.0.9.2 with [64999:911] 203.0.113.12/32]"
	r := start()
	r.SetOverrides([]model.VIPRoute{scrubbed, blackholed})
	r.holds(overridden)
	if r.discarded != usual {
		t.Errorf("the kernel discards %s", r.discarded)
	}
	again := start()
	again.holds(overridden)
	again.SetOverrides([]model.VIPRoute{scrubbed})
	again.holds("[203.0.113.10/32 via 10.0.9.2 with [64999:911] 203.0.113.11/32 203.0.113.12/32]")
	again.SetOverrides(nil)
	again.holds(usual)
	start().holds(usual)
	if err := os.WriteFile(file, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	start().holds(usual)
}

// The route of one VIP is announced beside its aggregate, which still brings the packets of a withdrawn VIP.
func TestOverriddenVIPsOfAggregates(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Aggregates = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")} })
	r.Adopt(vips(10, 11), nil)
	r.SetOverrides([]model.VIPRoute{scrubbed, blackholed})
	r.holds("[203.0.113.0/24 203.0.113.10/32 via 10.0.9.2 with [64999:911]]")
	r.warns("VIP 203.0.113.11 is to be black-holed, but aggregate 203.0.113.0/24 still brings its packets: " +
		"give its pool a blackhole")
	r.Set(vips(11), Overlay{}, Reach{Tried: true})
	r.holds("[]") // the last VIP of the aggregate
	r.warns()
}

// A VIP whose route is taken back is not answered for either; ARP and NDP can't divert one, which is said.
func TestOverridesHoldForNeighbors(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Neighbors = []netip.Prefix{netip.MustParsePrefix("203.0.113.8/29")} })
	r.Adopt(vips(10, 11), nil)
	r.SetOverrides([]model.VIPRoute{scrubbed, blackholed})
	if serving, ok := r.Serving(); !ok || !maps.Equal(serving, vips(10)) {
		t.Errorf("answered for are %v, %v", serving, ok)
	}
	r.warns("VIP 203.0.113.10 has another route for scrub, but ARP and NDP for it are answered: its packets come from the segment as before")
	r.SetOverrides(nil)
	if serving, _ := r.Serving(); !maps.Equal(serving, vips(10, 11)) {
		t.Errorf("answered for are %v", serving)
	}
	r.warns()
}
