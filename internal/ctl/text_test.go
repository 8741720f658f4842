package ctl

import (
	"slices"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m0s", 3*time.Minute + 12*time.Second: "3m12s",
		time.Hour: "1h0m", 26*time.Hour + time.Minute: "1d2h",
	} {
		if got := age(d); got != want {
			t.Errorf("%s is written as %q, want %q", d, got, want)
		}
	}
}

func TestLagReasons(t *testing.T) {
	s := &session{now: func() time.Time { return now }}
	cases := []struct {
		status *weirv1.NodeStatus
		want   string
	}{
		{&weirv1.NodeStatus{Connected: true, Generation: 7}, ""},
		{&weirv1.NodeStatus{Generation: 8}, ""},
		{&weirv1.NodeStatus{Connected: true, Generation: 6}, "m is connected but slow, it runs generation 6"},
		{&weirv1.NodeStatus{}, "m is disconnected, last seen never, it runs none"},
		{&weirv1.NodeStatus{LastSeen: before(time.Minute), Generation: 6}, "m is disconnected, last seen 1m0s ago, it runs generation 6"},
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
		if reasons := s.lagging([]*weirv1.Node{{Name: "m", Status: c.status}}, 7); len(reasons) > 0 {
			got = reasons[0]
		}
		if got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// A mux that refuses its first snapshot comes and goes: what matters is why.
func TestRefusalIsToldOfADisconnectedNode(t *testing.T) {
	o := observation{session: &session{now: func() time.Time { return now }}, status: &weirv1.GetStatusResponse{}}
	o.warnNode(&weirv1.Node{Name: "m", Role: "mux", Status: &weirv1.NodeStatus{
		LastSeen: before(time.Second), Rejection: &weirv1.Rejection{Generation: 7, Reason: "full"},
	}})
	want := []string{
		"mux m: refused generation 7: full",
		"mux m: disconnected, last seen 1s ago; it runs none: check the machine, or weir delete node m if it is gone for good",
	}
	if !slices.Equal(o.warnings, want) {
		t.Errorf("got %q\nwant %q", o.warnings, want)
	}
}

func TestTally(t *testing.T) {
	backend := func(weight uint32, health string) *weirv1.Backend {
		return &weirv1.Backend{Weight: &weight, Status: &weirv1.BackendStatus{Health: health}}
	}
	var all tally
	if got := all.String(); got != "0/0" {
		t.Errorf("nothing is %q", got)
	}
	for _, b := range []*weirv1.Backend{
		backend(1, "healthy"), backend(1, "unchecked"), backend(1, "unhealthy"), backend(1, "unknown"), backend(0, "healthy"),
		{Status: &weirv1.BackendStatus{Health: "healthy"}},
	} {
		all.add(b)
	}
	if got, want := all.String(), "3/6 (1 unhealthy, 1 unknown, 1 draining)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
