package switchd

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/linux"
)

// linuxDriver is the only driver so far.
const linuxDriver = "linux"

// drivers are the values of --driver.
var drivers = []string{linuxDriver}

func driverNames() string { return strings.Join(drivers, " or ") }

// open opens the driver. Without settings it is to be read only.
func (o *Options) open(ctx context.Context, s settings) (hardware.Driver, error) {
	switch o.Driver {
	case linuxDriver:
		return linux.New(ctx, linux.Config{Source: s.source6, Configure: o.SetUp && s.source6.IsValid()})
	}
	return nil, fmt.Errorf("read --driver: must be %s, is %q", driverNames(), o.Driver)
}
