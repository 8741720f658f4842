package placed

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// Even refuses VIPs that are split over switches which routers do not treat alike, by a fabric that has all of them: the
// nearest would get all packets, and its part of the backends all new connections.
func Even(s *store.State, vips []model.VIP) error {
	var errs []error
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
			errs = append(errs, &model.FieldError{
				Field:  fmt.Sprintf("vips[%d].hardware.switches", i),
				Reason: "must be equally far from everywhere to share the backends (split): " + why,
			})
		}
	}
	return errors.Join(errs...)
}
