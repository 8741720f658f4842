package describe

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func TestOverloadPoliciesAreTold(t *testing.T) {
	vip := &weirv1.VIP{Name: "shop", Overload: &weirv1.Overload{
		Triggers: []string{"overload", "syn-flood"},
		Steps: []*weirv1.OverloadStep{
			{Action: "limit", After: durationpb.New(10 * time.Second), Limits: &weirv1.Limits{Packets: 5000}},
			{Action: "scrub", After: durationpb.New(20 * time.Second), Scrubber: "east"},
			{Action: "blackhole", After: durationpb.New(time.Minute)},
		},
		HoldDown: durationpb.New(5 * time.Minute), MaxHoldDown: durationpb.New(time.Hour),
	}}
	var out strings.Builder
	boundsText(&out, vip)
	const want = "Overload:    on overload or syn-flood: limit to 5000 packets a second after 10s, then scrub by east after 20s, then blackhole after 1m0s; for 5m0s at least, up to 1h0m0s at relapses\n"
	if out.String() != want {
		t.Errorf("got %q", out.String())
	}
}
