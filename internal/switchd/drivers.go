package switchd

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/linux"
	"github.com/weirlb/weir/internal/hardware/sonic"
	"github.com/weirlb/weir/internal/hardware/xdp"
)

// Values of --driver.
const (
	linuxDriver = "linux"
	sonicDriver = "sonic"
	xdpDriver   = "xdp"
)

var drivers = []string{linuxDriver, sonicDriver, xdpDriver}

func driverNames() string {
	last := len(drivers) - 1
	return strings.Join(drivers[:last], ", ") + " or " + drivers[last]
}

// open opens the driver. Without settings it changes nothing of the machine by itself.
func (o *Options) open(ctx context.Context, s settings) (hardware.Driver, error) {
	serves := s.source4.IsValid() || s.source6.IsValid()
	switch o.Driver {
	case linuxDriver:
		return linux.New(ctx, linux.Config{LLDP: o.LLDP, Source: s.source6, Configure: o.SetUp && s.source6.IsValid()})
	case sonicDriver:
		return sonic.New(sonic.Config{})
	case xdpDriver:
		return xdp.New(xdp.Config{LLDP: o.LLDP, Existing: !serves, Configure: o.SetUp && serves})
	}
	return nil, fmt.Errorf("read --driver: must be %s, is %q", driverNames(), o.Driver)
}
