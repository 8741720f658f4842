package switchd

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// good are flags that are complete.
var good = []string{
	"--name", "sw1", "--driver", "linux", "--source6", "2001:db8:f::1", "--vip-prefixes", "203.0.113.0/24,2001:db8:a::/48", "--as", "65001",
	"--router-id", "10.255.1.2", "--peer", "address=192.0.2.1,as=65001", "--next-hop4", "192.0.2.2", "--community", "65001:100,65001:2:3",
}

func read(flags ...string) (settings, error) {
	var o Options
	cmd := &cobra.Command{Use: "weir-switch"}
	o.Flags(cmd)
	if err := cmd.ParseFlags(append(append([]string{}, good...), flags...)); err != nil {
		return settings{}, err
	}
	return o.settings()
}

func TestFlagsAreRead(t *testing.T) {
	s, err := read()
	if err != nil {
		t.Fatal(err)
	}
	if len(s.vips) != 2 || len(s.communities) != 2 || s.source4.IsValid() || s.source6.String() != "2001:db8:f::1" || s.bgp.NextHop4.String() != "192.0.2.2" ||
		s.bgp.AS != 65001 || len(s.bgp.Peers) != 1 || s.bgp.GracefulRestart.String() != "2m0s" {
		t.Errorf("settings %+v", s)
	}
}

func TestWrongFlagsAreNamed(t *testing.T) {
	for _, c := range []struct{ flag, value, want string }{
		{"name", "Switch 1", "read --name: must be a DNS label"},
		{"driver", "tofino", "read --driver: must be linux, sonic or xdp, is"},
		{"source6", "", "read --source4 and --source6: one must be set"},
		{"source6", "10.0.0.1", "read --source6: must be a routable address of that family"},
		{"vip-prefixes", "0.0.0.0/0", "read --vip-prefixes: must be prefixes such as"},
		{"vip-prefixes", "203.0.113.0/24,x", "read --vip-prefixes: must be prefixes such as"},
		{"tip-prefixes", "203.0.113.1", "read --tip-prefixes: must be prefixes such as"},
		{"as", "0", "read --as: is missing"},
		{"router-id", "", "read --router-id: is missing"},
		{"peer", "as=1", "read --peer \"as=1\": address and as are required"},
		{"peer", "address=192.0.2.7,as=1,evpn=true", "evpn is for muxes"},
		{"next-hop4", "", "read --next-hop4 and --next-hop6: one must be set"},
		{"next-hop4", "127.0.0.1", "read --next-hop4: must be a routable address"},
		{"community", "x", "read --community: "},
		{"lease", "10s", "read --lease: must be from 1m to 10m"},
		{"lease", "11m", "read --lease: must be from 1m to 10m"},
		{"drain-time", "-1s", "read --drain-time: must not be negative"},
	} {
		if _, err := read("--" + c.flag + "=" + c.value); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("--%s %s: error %v, want %q", c.flag, c.value, err, c.want)
		}
	}
}
