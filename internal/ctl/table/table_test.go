package table

import (
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func TestTally(t *testing.T) {
	backend := func(weight uint32, health string) *weirv1.Backend {
		return &weirv1.Backend{Weight: &weight, Status: &weirv1.BackendStatus{Health: health}}
	}
	var all Tally
	if got := all.String(); got != "0/0" {
		t.Errorf("nothing is %q", got)
	}
	for _, b := range []*weirv1.Backend{
		backend(1, "healthy"), backend(1, "unchecked"), backend(1, "unhealthy"), backend(1, "unknown"), backend(0, "healthy"),
		{Status: &weirv1.BackendStatus{Health: "healthy"}},
	} {
		all.Add(b)
	}
	if got, want := all.String(), "3/6 (1 unhealthy, 1 unknown, 1 draining)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOverloadIsToldInLists(t *testing.T) {
	vip := &weirv1.VIP{Name: "shop"}
	hints := map[string]string{"Limited": " (limited)", "Scrubbed": " (scrubbed)", "BlackHoled": " (black-holed)"}
	for reason, hint := range hints {
		vip.Status = &weirv1.VIPStatus{Conditions: []*weirv1.Condition{
			{Type: "healthy", Status: "true"}, {Type: "overloaded", Status: "true", Reason: reason},
		}}
		if got := overloadHint(vip); got != hint {
			t.Errorf("%s: %q", reason, got)
		}
		vip.Status.Conditions[1].Status = "false"
		if got := overloadHint(vip); got != "" {
			t.Errorf("not %s: %q", reason, got)
		}
	}
}
