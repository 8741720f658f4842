package netlink_test

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/netlink"
)

// A socket of VXLAN is open in each family that the host has, by an idle device only where no other has it.
func TestVXLANSocketsAreKept(t *testing.T) {
	ns := netns.New(t, fmt.Sprintf("wvxlan%d", os.Getpid()))
	run := func(command ...string) {
		t.Helper()
		if out, err := ns.Run(command[0], command[1:]...); err != nil {
			t.Fatalf("%v: %v: %s", command, err, out)
		}
	}
	keep := func(want ...string) {
		t.Helper()
		for range 2 { // the second time changes nothing
			err := ns.Do(func() error {
				got, err := netlink.KeepVXLANSockets([]netip.Addr{netip.MustParseAddr("10.1.0.5"), netip.MustParseAddr("fd01::5")})
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("keeps %v, not %v", got, want)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		const port = "12B5"
		for _, family := range []string{"udp", "udp6"} {
			out, err := ns.Run("grep", "-c", ":"+port+" ", "/proc/net/"+family)
			if err != nil || out == "0\n" {
				t.Errorf("no socket of %s: %s, %v", family, out, err)
			}
		}
	}
	run("ip", "link", "add", "name", "up", "type", "veth", "peer", "name", "other")
	run("ip", "addr", "add", "10.1.0.5/24", "dev", "up")
	run("ip", "addr", "add", "fd01::5/64", "dev", "up", "nodad")
	run("ip", "link", "set", "dev", "up", "up")
	keep("weir-vxlan4", "weir-vxlan6")
	run("ip", "link", "add", "vx1", "type", "vxlan", "id", "1", "local", "10.1.0.5", "dstport", "4789")
	run("ip", "link", "set", "vx1", "up")
	keep("weir-vxlan6")
	run("ip", "link", "del", "vx1")
	keep("weir-vxlan4", "weir-vxlan6")
	run("ip", "link", "set", "weir-vxlan4", "down") // as after a process that died before it set it up
	keep("weir-vxlan4", "weir-vxlan6")
}
