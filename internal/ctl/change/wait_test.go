package change

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func TestLagReasons(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	before := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }
	cases := []struct {
		status *weirv1.NodeStatus
		want   string
	}{
		{&weirv1.NodeStatus{Connected: true, Generation: 7}, ""},
		{&weirv1.NodeStatus{Generation: 8}, ""},
		{&weirv1.NodeStatus{Connected: true, Generation: 6}, "m is connected but slow, it runs generation 6"},
		{&weirv1.NodeStatus{}, "m is disconnected, last seen never, it runs none"},
		{
			&weirv1.NodeStatus{LastSeen: before(time.Minute), Generation: 6},
			"m is disconnected, last seen 1m0s ago, it runs generation 6",
		},
		{
			&weirv1.NodeStatus{Connected: true, Generation: 6, Rejection: &weirv1.Rejection{Generation: 7, Reason: "full"}},
			"m refused generation 7 (full), it runs generation 6",
		},
		{
			&weirv1.NodeStatus{LastSeen: before(time.Second), Rejection: &weirv1.Rejection{Generation: 7, Reason: "full"}},
			"m is disconnected, last seen 1s ago, refused generation 7 (full), it runs none",
		},
	}
	for _, c := range cases {
		got := ""
		if reasons := lagging([]*weirv1.Node{{Name: "m", Status: c.status}}, 7, now); len(reasons) > 0 {
			got = reasons[0]
		}
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
