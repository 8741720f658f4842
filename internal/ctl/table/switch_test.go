package table

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func TestSwitchesAndPlacements(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	node := &weirv1.Node{Name: "sw1", Role: "switch", Status: &weirv1.NodeStatus{
		Connected: true, Generation: 7, Switch: &weirv1.SwitchStatus{
			Driver: "linux", Hosts: &weirv1.SwitchTable{Size: 16384, Used: 2}, Programmed: 2, Announced: 1,
			Ports: []*weirv1.SwitchPort{
				{Name: "eth0", Up: true, MbitPerS: 100_000, Neighbour: "core-1", NeighbourPort: "Ethernet4", ReceivedBytesPerS: 150_000_000, SentBytesPerS: 40, Errors: 3, Changes: 4},
				{Name: "eth1"},
			},
		},
	}}
	vips := []*weirv1.VIP{
		{Name: "soft", Address: "203.0.113.1"},
		{Name: "kept", Address: "203.0.113.2", Hardware: &weirv1.Hardware{Placement: "never", Switches: []string{"sw1"}}},
		{
			Name: "fast", Address: "203.0.113.3", Hardware: &weirv1.Hardware{Placement: "require", Switches: []string{"sw1", "sw2"}},
			Status: &weirv1.VIPStatus{
				Switches:   []*weirv1.SwitchPlace{{Switch: "sw1", Phase: "evicted", Since: timestamppb.New(now.Add(-time.Minute)), Reason: "full", Part: 1, Parts: 2}},
				Conditions: []*weirv1.Condition{{Type: "hardware", Message: "sw2: waits"}},
			},
		},
	}
	for _, c := range []struct {
		table *Table
		want  string
	}{
		{Switches([]*weirv1.Node{node}, now), `NAME  STATE      GENERATION  DRIVER  HOSTS    ECMP  TUNNELS  PROGRAMMED  ANNOUNCED  PORTS UP
sw1   connected  7           linux   2/16384  0/0   0/0      2           1          1/2
`},
		{SwitchPorts(node.GetStatus().GetSwitch().GetPorts()), `  PORT  LINK  SPEED  NEIGHBOUR  ITS PORT   RECEIVED  SENT  ERRORS  UPS AND DOWNS
  eth0  up    100G   core-1     Ethernet4  1.2G      0     3       4
  eth1  down  -      -          -          0         0     0       0
`},
		{Placements(vips, now), `VIP   ADDRESS      SWITCH  PHASE     PART  SINCE     REASON
fast  203.0.113.3  sw1     evicted   1/2   1m0s ago  full
fast  203.0.113.3  sw2     software  -     -         sw2: waits
`},
		{Placements(vips[:2], now), "no VIP is in a switch, or is to be in one\n"},
	} {
		var got bytes.Buffer
		if err := c.table.Write(&got); err != nil || got.String() != c.want {
			t.Errorf("got\n%s%v, want\n%s", got.String(), err, c.want)
		}
	}
}
