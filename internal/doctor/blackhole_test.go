package doctor

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/lab/netns"
)

// A way whose far end drops large packets without a word is told from one that carries them, and from one where nobody
// answers. A veth drops what the MTU of its other end does not allow.
//
//	hole-here eth0 1500 ── 1400 eth0 hole-there      10.97.0.2 ── 10.97.0.1, fd97:0::2 ── fd97:0::1
//	          eth1 1500 ── 1500 eth1 hole-beside     10.97.1.2 ── 10.97.1.1, fd97:1::2 ── fd97:1::1
func TestBlackHoles(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	here, there, beside := netns.New(t, "hole-here"), netns.New(t, "hole-there"), netns.New(t, "hole-beside")
	must(netns.Veth(here, "eth0", there, "eth0"))
	must(netns.Veth(here, "eth1", beside, "eth1"))
	must(here.AddAddress("eth0", netip.MustParsePrefix("10.97.0.2/24"), netip.MustParsePrefix("fd97:0::2/64")))
	must(here.AddAddress("eth1", netip.MustParsePrefix("10.97.1.2/24"), netip.MustParsePrefix("fd97:1::2/64")))
	must(there.AddAddress("eth0", netip.MustParsePrefix("10.97.0.1/24"), netip.MustParsePrefix("fd97:0::1/64")))
	must(beside.AddAddress("eth1", netip.MustParsePrefix("10.97.1.1/24"), netip.MustParsePrefix("fd97:1::1/64")))
	must(there.SetMTU("eth0", 1400))

	var routes []route
	for _, w := range [][2]string{
		{"10.97.0.1", "hole4"}, {"fd97:0::1", "hole6"}, {"10.97.1.1", "sound4"}, {"fd97:1::1", "sound6"}, {"10.97.1.77", "silent4"}, {"fd97:1::77", "silent6"},
	} {
		to := netip.MustParseAddr(w[0])
		routes = append(routes, route{to: to, name: w[1], node: to})
	}
	routes[5].node = netip.Addr{} // of whose node no address is known
	for _, role := range []Role{Mux, Host} {
		var found []Finding
		must(here.Do(func() error {
			found = judgeRoutes(t.Context(), Subject{Role: role, Interface: "eth0"}, routes, 1500)
			return nil
		}))
		var holes []string
		for _, f := range found {
			switch {
			case f.Level == Fail && strings.Contains(f.Reason, "black hole"):
				holes = append(holes, f.Reason)
			case f.Level == Fail, strings.Contains(f.Reason, "hole4"), strings.Contains(f.Reason, "hole6"):
				t.Errorf("%s: %s %s", role, f.Level, f.Reason)
			}
		}
		if text := strings.Join(holes, "\n"); len(holes) != 2 || !strings.Contains(text, "of hole4") || !strings.Contains(text, "of hole6") {
			t.Errorf("%s: black holes are said to be %q, of all that was found: %+v", role, holes, found)
		}
	}
	must(there.SetMTU("eth0", 1500))
	must(here.Do(func() error {
		found := judgeRoutes(t.Context(), Subject{Role: Host, Interface: "eth0"}, routes, 1500)
		if len(found) != 1 || found[0].Level != OK || !strings.Contains(found[0].Reason, "6 of 6") || !strings.Contains(found[0].Reason, "2 answer no echo") {
			t.Errorf("when all carry what they must: %+v", found)
		}
		return nil
	}))
}
