package condition

import (
	"fmt"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/vipstatus"
)

// StepReasons are those of events and conditions, by action.
var StepReasons = map[model.OverloadAction]string{
	model.ActionLimit: "Limited", model.ActionScrub: "Scrubbed", model.ActionBlackhole: "BlackHoled",
}

// StepText says what a step does to vip.
func StepText(vip model.VIP, action model.OverloadAction) string {
	switch action {
	case model.ActionScrub:
		return "announced for scrubber " + vip.Overload.Steps[vip.Overload.Step(action)].Scrubber
	case model.ActionBlackhole:
		return "black-holed: nothing of it arrives"
	}
	return "limited further"
}

// overloaded says what is in force of a VIP's overload policy; false: it has none.
func overloaded(s *store.State, vip model.VIP) (*weirv1.Condition, bool) {
	if vip.Overload == nil {
		return nil, false
	}
	state := s.Steps.At(vip.Name).Of(vip)
	if state.Action == "" {
		c := Condition{False, "AsUsual", "no step of the overload policy is in force"}
		return c.toProto("overloaded", vipstatus.Condition{Status: False, Since: state.Ended}), true
	}
	c := Condition{True, StepReasons[state.Action], fmt.Sprintf("%s, until %s at least: %s",
		StepText(vip, state.Action), state.Until.UTC().Format(time.RFC3339), state.Evidence)}
	return c.toProto("overloaded", vipstatus.Condition{Status: True, Since: state.Began}), true
}
