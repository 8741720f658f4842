package condition

import (
	"fmt"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// attached says whether all networks that a VIP is to be in have it, or why some have not; false: there are none.
func attached(s *store.State, vip model.VIP) (*weirv1.Condition, bool) {
	if len(vip.Attachments) == 0 {
		return nil, false
	}
	c := Condition{Status: True, Reason: string(network.InForce)}
	var without []string
	for _, a := range vip.Attachments {
		if state := s.Networks.StateOf(vip.Tenant, a); state != network.InForce {
			if without == nil {
				c = Condition{Status: False, Reason: string(state)}
			}
			without = append(without, fmt.Sprintf("not to %s: %s", a.Network, state.Reason()))
		}
	}
	c.Message = fmt.Sprintf("attached to %d of %d networks", len(vip.Attachments)-len(without), len(vip.Attachments))
	const most = 10
	if n := len(without); n > most {
		without = append(without[:most], fmt.Sprintf("and %d more", n-most))
	}
	if len(without) > 0 {
		c.Message += "; " + strings.Join(without, "; ")
	}
	return c.toProto("attached", store.Condition{}), true
}
