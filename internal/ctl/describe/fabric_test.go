package describe

import (
	"bytes"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func TestAFabricIsShownAsItsSwitchesReport(t *testing.T) {
	m := &weirv1.Fabric{Name: "dc1", Clos: &weirv1.Clos{Containers: 1, TorsPerContainer: 2, AggsPerContainer: 0, Cores: 2, TorMbitPerS: 1000}}
	node := func(name string, connected bool, ports ...*weirv1.SwitchPort) *weirv1.Node {
		return &weirv1.Node{Name: name, Status: &weirv1.NodeStatus{Connected: connected, Switch: &weirv1.SwitchStatus{Ports: ports}}}
	}
	nodes := []*weirv1.Node{
		node("core-1", true, &weirv1.SwitchPort{Name: "e0", Up: true, Neighbour: "tor-1-1"}, &weirv1.SwitchPort{Name: "e1", Neighbour: "tor-1-2"}),
		node("tor-1-1", true, &weirv1.SwitchPort{Name: "e0", Up: true, Neighbour: "core-1"}, &weirv1.SwitchPort{Name: "e1", Up: true, Neighbour: "tor-1-2"}),
		node("core-2", false, &weirv1.SwitchPort{Name: "e0", Up: true, Neighbour: "tor-1-1"}),
		node("other", true, &weirv1.SwitchPort{Name: "e0", Up: true, Neighbour: "core-1"}),
	}
	want := `Name:        dc1
Switches:    4, of which 2 report their ports
Racks:       2
Links:       4 are to be up, 1 are there as switches report

Other than declared
  SWITCHES            MISSING  DOWN  UNEXPECTED  PORT
  core-1 to tor-1-2   0        1     0           e1 of core-1
  tor-1-1 to tor-1-2  0        0     1           -
`
	var got bytes.Buffer
	if err := describeFabric(&got, m, nodes); err != nil || got.String() != want {
		t.Errorf("got\n%s%v, want\n%s", got.String(), err, want)
	}
}
