package netlab

import (
	"strings"
	"testing"
)

func TestPicture(t *testing.T) {
	plan := Plan{Name: "demo", Clients: 1, Muxes: 2, Hosts: 2, Workloads: 2}
	want := `
                                          ┌─── mux1     10.1.1.2   XDP, BGP of AS 65010
                                          ├─── mux2     10.1.2.2   XDP, BGP of AS 65010
                                          ├─── host1    10.2.1.2   agent
  client1  10.0.1.2  ───┬───── router ────┤     ├── host1-w1 10.3.1.11  in its own namespace
  manager  10.4.1.2  ───┘  FRR, AS 65000  │     └── host1-w2 10.3.1.12  native on the host
                                          └─── host2    10.2.2.2   agent
                                                ├── host2-w1 10.3.2.11  in its own namespace
                                                └── host2-w2 10.3.2.12  native on the host
`
	if got := "\n" + plan.Picture(); got != want {
		t.Errorf("picture:\n%s\nwant:\n%s", got, want)
	}
}

func TestAddressesFollowTheNames(t *testing.T) {
	plan := Plan{Name: "demo", Clients: 1, Muxes: 1, Hosts: 12, Workloads: 3}
	for name, want := range map[string]string{
		"client1":   "10.0.1.2 fd00:0:1::2",
		"mux1":      "10.1.1.2 fd00:1:1::2",
		"host12":    "10.2.12.2 fd00:2:12::2",
		"host12-w3": "10.3.12.13 fd00:3:12::13",
		"manager":   "10.4.1.2 fd00:4:1::2",
	} {
		n, err := plan.Node(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.IPv4.String() + " " + n.IPv6.String(); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
	if _, err := plan.Node("host13"); err == nil || !strings.Contains(err.Error(), "host13") {
		t.Errorf("a node that is not there: %v", err)
	}
}

func TestManagersHaveNumbersIfThereAreSeveral(t *testing.T) {
	plan := Plan{Name: "demo", Clients: 1, Muxes: 1, Hosts: 1, Workloads: 1, Managers: 3}
	var got []string
	for _, n := range plan.Of(Manager) {
		got = append(got, n.Name+" "+n.IPv4.String())
	}
	if want := "manager1 10.4.1.2, manager2 10.4.2.2, manager3 10.4.3.2"; strings.Join(got, ", ") != want {
		t.Errorf("managers are %v, want %s", got, want)
	}
}

func TestSwitchesStandBesideTheMuxes(t *testing.T) {
	plan := Plan{Name: "demo", Clients: 1, Muxes: 1, Hosts: 1, Workloads: 1, Switches: 2}
	n, err := plan.Node("sw2")
	if err != nil || n.IPv4.String() != "10.7.2.2" || n.IPv6.String() != "fd00:7:2::2" {
		t.Errorf("sw2 is %+v, %v", n, err)
	}
	if picture := plan.Picture(); !strings.Contains(picture, "─── sw2      10.7.2.2   switch, FRR of AS 65102") {
		t.Errorf("picture:\n%s", picture)
	}
	plan.Switches = 100
	if err := plan.Validate(); err == nil || !strings.Contains(err.Error(), "switches must be") {
		t.Errorf("100 switches: %v", err)
	}
}

func TestServersOutsideHaveOtherNetworks(t *testing.T) {
	plan := Plan{Name: "demo", Clients: 1, Muxes: 1, Hosts: 1, Workloads: 1, Outside: 2}
	n, err := plan.Node("outside2")
	if err != nil {
		t.Fatal(err)
	}
	if !Outside4.Contains(n.IPv4) || !Outside6.Contains(n.IPv6) || n.IPv4.String() != "198.18.2.2" {
		t.Errorf("outside2 has %s and %s", n.IPv4, n.IPv6)
	}
	if gateway, _ := n.gateway(); gateway.String() != "198.18.2.1" {
		t.Errorf("its gateway is %s", gateway)
	}
	if picture := plan.Picture(); !strings.Contains(picture, "outside1 198.18.1.2 ───") {
		t.Errorf("picture:\n%s", picture)
	}
}

func TestBadPlansAreRefused(t *testing.T) {
	good := Plan{Name: "demo", Clients: 1, Muxes: 1, Hosts: 1, Workloads: 1}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(*Plan)
		want   string
	}{
		{func(p *Plan) { p.Name = "my-lab" }, "name must be"},
		{func(p *Plan) { p.Name = "" }, "name must be"},
		{func(p *Plan) { p.Clients = 0 }, "clients must be"},
		{func(p *Plan) { p.Muxes = 100 }, "muxes must be"},
		{func(p *Plan) { p.Hosts = -1 }, "hosts must be"},
		{func(p *Plan) { p.Workloads = 90 }, "workloads must be"},
		{func(p *Plan) { p.Managers = 6 }, "managers must be"},
		{func(p *Plan) { p.Outside = 100 }, "outside must be"},
	} {
		plan := good
		c.change(&plan)
		if err := plan.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", plan, err, c.want)
		}
	}
}
