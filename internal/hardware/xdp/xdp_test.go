package xdp_test

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/drivertest"
	"github.com/weirlb/weir/internal/hardware/xdp"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/testkit/switchlab"
)

func open(t *testing.T, ns *netns.NS, config xdp.Config) *xdp.Driver {
	t.Helper()
	var d *xdp.Driver
	must(t, ns.Do(func() (err error) {
		d, err = xdp.New(config)
		return err
	}))
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newLab(t *testing.T) *switchlab.Lab {
	t.Helper()
	lab := switchlab.New(t, "hwxdp")
	must(t, lab.Client.PassXDP("eth0"))
	must(t, lab.Fabric.PassXDP("eth0")) // a veth takes redirected frames only if its peer has a program
	return lab
}

func TestDriver(t *testing.T) {
	drivertest.Run(t, drivertest.Config{New: func(t *testing.T, limits drivertest.Limits) *drivertest.Switch {
		lab := newLab(t)
		port, lldp := lab.Port(t)
		config := xdp.Config{Hosts: limits.Hosts, ECMP: limits.ECMP, Tunnels: limits.Tunnels, Members: limits.Members, Seed: 1, Configure: true, LLDP: lldp}
		return &drivertest.Switch{
			Driver:       open(t, lab.Switch, config),
			Reopen:       func() hardware.Driver { return open(t, lab.Switch, config) },
			RemoveByHand: func(vip netip.Addr) { removeByHand(t, lab.Switch, vip) },
			Reboot: func() {
				for _, port := range []string{switchlab.ClientPort, switchlab.FabricPort} {
					detach(t, lab.Switch, port)
				}
			},
			Port: port, Path: lab,
		}
	}})
}

func detach(t *testing.T, ns *netns.NS, port string) {
	t.Helper()
	link, err := ns.Netlink().LinkByName(port)
	must(t, err)
	must(t, ns.Do(func() error { return netlink.LinkSetXdpFd(link, -1) }))
}

// A command that only looks attaches nothing, and reads what a daemon has written.
func TestExisting(t *testing.T) {
	lab := newLab(t)
	err := lab.Switch.Do(func() error {
		_, err := xdp.New(xdp.Config{Existing: true})
		return err
	})
	if err == nil {
		t.Error("there is a switch, and nobody has started one")
	}
	daemon := open(t, lab.Switch, xdp.Config{Ports: []string{switchlab.ClientPort}, Seed: 1})
	defer daemon.Close()
	e := hardware.Entry{VIP: netip.MustParseAddr("203.0.113.1"), Source: drivertest.Source(false)}
	e.Members = []hardware.Member{{Tunnel: drivertest.Tunnel(false, 1), Entries: 2}}
	must(t, daemon.Program(t.Context(), e))
	looks := open(t, lab.Switch, xdp.Config{Existing: true})
	defer looks.Close()
	got, err := looks.Read(t.Context())
	must(t, err)
	if len(got) != 1 || !got[0].Equal(e) {
		t.Errorf("read %+v, want %+v", got, e)
	}
	link, err := lab.Switch.Netlink().LinkByName(switchlab.FabricPort)
	must(t, err)
	if link.Attrs().Xdp.Attached {
		t.Error("the other port has a program now")
	}
}
