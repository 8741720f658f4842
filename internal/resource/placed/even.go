package placed

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// Even refuses VIPs that are split over switches which routers do not treat alike, by a fabric that has all of them: the
// nearest would get all packets, and its part of the backends all new connections.
func Even(s *store.State, vips []model.VIP) error {
	var errs model.FieldErrorList
	uneven := map[string]string{} // by switches: many VIPs have the same
	for i, vip := range vips {
		if !vip.InHardware() || !vip.Hardware.Split {
			continue
		}
		names := slices.Sorted(slices.Values(vip.Hardware.Switches))
		key := strings.Join(names, ",")
		why, known := uneven[key]
		for f := range s.Fabrics.Values() {
			if !known && why == "" && f.Network != nil {
				why = f.Network.Uneven(names)
			}
		}
		if uneven[key] = why; why != "" {
			errs.Refuse(fmt.Sprintf("vips[%d].hardware.switches", i),
				"must be equally far from everywhere to share the backends (split): %s", why)
		}
	}
	return errs.Err()
}
