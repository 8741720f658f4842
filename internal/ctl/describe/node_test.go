package describe

import (
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// What a switch has withdrawn by itself is listed.
func TestWithdrawnVIPsOfASwitch(t *testing.T) {
	for _, c := range []struct {
		vips []string
		more bool
		want string
	}{
		{nil, false, ""},
		{[]string{"203.0.113.1"}, false, "Withdrawn:   203.0.113.1: the switch has no route to their tunnels\n"},
		{[]string{"203.0.113.1", "2001:db8::1"}, true, "Withdrawn:   203.0.113.1 2001:db8::1, and more: the switch has no route to their tunnels\n"},
	} {
		var out strings.Builder
		if err := describeSwitch(&out, &weirv1.SwitchStatus{Unrouted: c.vips, UnroutedMore: c.more}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if has := strings.Contains(out.String(), "Withdrawn"); has != (c.want != "") || !strings.Contains(out.String(), c.want) {
			t.Errorf("got %q, want %q", out.String(), c.want)
		}
	}
}
