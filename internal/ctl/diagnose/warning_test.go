package diagnose

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// A mux that refuses its first snapshot comes and goes: what matters is why.
func TestRefusalIsToldOfADisconnectedNode(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	o := observation{now: now, status: &weirv1.GetStatusResponse{}}
	o.warnNode(&weirv1.Node{Name: "m", Role: "mux", Status: &weirv1.NodeStatus{
		LastSeen: timestamppb.New(now.Add(-time.Second)), Rejection: &weirv1.Rejection{Generation: 7, Reason: "full"},
	}})
	want := []string{
		"mux m: refused generation 7: full",
		"mux m: disconnected, last seen 1s ago; it runs none: " +
			"check the machine, or weir delete node m if it is gone for good",
	}
	if !slices.Equal(o.warnings, want) {
		t.Errorf("got %q\nwant %q", o.warnings, want)
	}
}
