package linux_test

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/drivertest"
	"github.com/weirlb/weir/internal/hardware/linux"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/testkit/switchlab"
)

func open(t *testing.T, ns *netns.NS, config linux.Config) *linux.Driver {
	t.Helper()
	var d *linux.Driver
	err := ns.Do(func() (err error) {
		d, err = linux.New(t.Context(), config)
		return err
	})
	must(t, err)
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDriver(t *testing.T) {
	drivertest.Run(t, drivertest.Config{New: func(t *testing.T, limits drivertest.Limits) *drivertest.Switch {
		lab := switchlab.New(t, "hwlinux")
		port, lldp := lab.Port(t)
		config := linux.Config{
			Hosts: limits.Hosts, ECMP: limits.ECMP, Tunnels: limits.Tunnels, Members: limits.Members,
			Source: drivertest.Source(true), Configure: true, LLDP: lldp,
		}
		foreign := func(vip netip.Addr) *netlink.Route {
			return &netlink.Route{Dst: netlink.NewIPNet(vip.AsSlice()), Gw: netip.MustParseAddr("10.66.0.2").AsSlice(), Priority: 50}
		}
		return &drivertest.Switch{
			Driver: open(t, lab.Switch, config),
			Reopen: func() hardware.Driver { return open(t, lab.Switch, config) },
			RemoveByHand: func(vip netip.Addr) {
				must(t, lab.Switch.Netlink().RouteDel(&netlink.Route{Dst: netlink.NewIPNet(vip.AsSlice())}))
			},
			Reboot:     func() { must(t, lab.Switch.DeleteLink("weir-tunnels")) },
			PutForeign: func(vip netip.Addr) { must(t, lab.Switch.Netlink().RouteAdd(foreign(vip))) },
			HasForeign: func(vip netip.Addr) bool {
				found, err := lab.Switch.Netlink().RouteGet(vip.AsSlice())
				return err == nil && len(found) == 1 && found[0].Gw.Equal(foreign(vip).Gw)
			},
			Port: port, Path: lab, KeepsTTL: true,
		}
	}})
}
