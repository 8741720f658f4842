package segment

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/lab/netns"
)

// As many groups are joined as a mux has VIPs, though one socket can't join so many before Linux 6.8.
func TestManyGroupsAreJoined(t *testing.T) {
	const most = 1000
	ns := netns.New(t, fmt.Sprintf("wgroups%d", os.Getpid()))
	if err := ns.Sysctl("net.core.optmem_max", "20480"); err != nil { // as there
		t.Fatal(err)
	}
	index, err := ns.Index("lo")
	if err != nil {
		t.Fatal(err)
	}
	g := openGroups("lo", index)
	set := func(from, to int) {
		t.Helper()
		var addresses []netip.Addr
		for i := from; i < to; i++ {
			addresses = append(addresses, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 14: byte(i >> 8), 15: byte(i)}))
		}
		if err := ns.Do(func() error { return g.SetAddresses(addresses) }); err != nil {
			t.Fatal(err)
		}
		out, err := ns.Run("cat", "/proc/net/igmp6")
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out, "ff0200000000000000000001ff00"); n != to-from {
			t.Errorf("%d groups are joined, want %d", n, to-from)
		}
	}
	set(0, most)
	for fd, n := range g.inUse {
		if n > groupsPerSocket {
			t.Errorf("socket %d has joined %d", fd, n)
		}
	}
	set(most/2, most+most/4)
	set(0, 1)
	if err := g.close(); err != nil {
		t.Error(err)
	}
}
