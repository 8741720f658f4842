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
		config := xdp.Config{Hosts: limits.Hosts, ECMP: limits.ECMP, Tunnels: limits.Tunnels, Members: limits.Members, Seed: 1, Configure: true}
		return &drivertest.Switch{
			Driver:       open(t, lab.Switch, config),
			Reopen:       func() hardware.Driver { return open(t, lab.Switch, config) },
			RemoveByHand: func(vip netip.Addr) { removeByHand(t, lab.Switch, vip) },
			Reboot: func() {
				for _, port := range []string{switchlab.ClientPort, switchlab.FabricPort} {
					detach(t, lab.Switch, port)
				}
			},
			Path: lab,
		}
	}})
}

func detach(t *testing.T, ns *netns.NS, port string) {
	t.Helper()
	link, err := ns.Netlink().LinkByName(port)
	must(t, err)
	must(t, ns.Do(func() error { return netlink.LinkSetXdpFd(link, -1) }))
}
