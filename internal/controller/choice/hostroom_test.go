package choice

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placechoice"
)

// wide is VIP number i with so many backends, the first of them on host1.
func wide(i, backends int) model.VIP {
	vip := model.VIP{Name: fmt.Sprint("vip", i), Hardware: &model.Hardware{Placement: model.PlacementAuto}, Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80}}}
	for b := range backends {
		vip.Endpoints[0].Backends = append(vip.Endpoints[0].Backends, model.Backend{Host: fmt.Sprint("host", b+1), Address: netip.AddrFrom4([4]byte{10, byte(i), byte(b / 250), byte(b % 250)})})
	}
	return vip
}

// Hosts have half of their tables for VIPs whose switches are chosen: 65 536 outer sources, of which one with 512 hosts takes 1664.
// Those that were chosen keep their room, and one with backends elsewhere is not held up.
func TestHostsHaveRoomForWhatIsChosen(t *testing.T) {
	const most = 39
	var s desired.State
	var vips []placechoice.VIP
	for i := range most + 2 {
		s.PutVIP(wide(i, 512))
		vips = append(vips, placechoice.VIP{Name: fmt.Sprint("vip", i)})
	}
	s.PutVIP(model.VIP{Name: "small", Endpoints: []model.Endpoint{{Backends: []model.Backend{{Host: "host999"}}}}})
	vips = append(vips, placechoice.VIP{Name: "small"})
	vips[most].Chosen = []string{"sw1"}
	keepToHosts(s, vips)
	for i, vip := range vips {
		stays := i == most-1 || i == most+1 // behind the one that was chosen
		if stays != (vip.Unfit != "") || stays && !strings.Contains(vip.Unfit, "host host1 can't steer it: it needs 66560 outer sources, has room for 65536") {
			t.Errorf("%s: %q", vip.Name, vip.Unfit)
		}
	}
}
