package steered

import (
	"net/netip"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/wire"
)

// Sent are the VIPs that switches hold as a host was told of them on a stream. Its slices are the tables' own.
type Sent struct {
	vips map[netip.Addr]steering.VIP
}

// AddTo writes into an update what a State has of the host's and was not sent.
func (t *Sent) AddTo(update *wire.HostUpdate, s desired.State, host string) {
	if update.Snapshot {
		t.vips = nil
	}
	now := nodeconfig.SteeredOn(s, host)
	update.Steering = steering.Diff(t.vips, now)
	t.vips = now
}
