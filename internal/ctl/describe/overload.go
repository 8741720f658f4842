package describe

import (
	"fmt"
	"io"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// overloadText tells what becomes of a VIP that has too much come.
func overloadText(w io.Writer, o *weirv1.Overload) {
	if o == nil {
		return
	}
	steps := make([]string, 0, len(o.GetSteps()))
	for _, s := range o.GetSteps() {
		text := s.GetAction()
		switch model.OverloadAction(text) {
		case model.ActionLimit:
			text += " to " + limitText(s.GetLimits()) + " a second"
		case model.ActionScrub:
			text += " by " + s.GetScrubber()
		}
		steps = append(steps, fmt.Sprintf("%s after %s", text, s.GetAfter().AsDuration()))
	}
	fmt.Fprintf(w, "Overload:    on %s: %s; for %s at least, up to %s at relapses\n",
		strings.Join(o.GetTriggers(), " or "), strings.Join(steps, ", then "),
		o.GetHoldDown().AsDuration(), o.GetMaxHoldDown().AsDuration())
}
