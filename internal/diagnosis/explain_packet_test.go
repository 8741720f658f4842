package diagnosis

import (
	"slices"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// That the flow table is not asked is told of packets of which that is so.
func TestStepsTellOfTheFilter(t *testing.T) {
	for verdict, want := range map[string]bool{"forward_known": true, "forward_bucket": false} {
		steps := packetSteps("mux1", &weirv1.PacketExplanation{Layer: "bucket", Verdict: verdict, Bucket: 3, Buckets: 256, Slot: 2})
		told := slices.ContainsFunc(steps, func(step string) bool { return strings.Contains(step, "the table is not asked") })
		if told != want || !slices.Contains(steps, "bucket 3 of 256 names slot 2") {
			t.Errorf("%s: %q", verdict, steps)
		}
	}
}
