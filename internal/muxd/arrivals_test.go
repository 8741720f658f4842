package muxd

import (
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
)

func TestArrivalsArePacketsOfVIPs(t *testing.T) {
	var a arrivals
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	look := func(now int, verdicts map[string]uint64, want time.Time) {
		t.Helper()
		counters := map[string]model.Counter{}
		for name, packets := range verdicts {
			counters[name] = model.Counter{Packets: packets}
		}
		if got := a.look(counters, at(now)); !got.Equal(want) {
			t.Errorf("at %d: last packet %v, want %v", now, got, want)
		}
	}
	// What the daemon before counted is no news.
	look(1, map[string]uint64{"forward_syn": 100, "pass_not_ip": 5}, time.Time{})
	look(2, map[string]uint64{"forward_syn": 100, "pass_no_endpoint": 70, "drop_not_a_mux": 9, "drop_vxlan": 3}, time.Time{})
	look(3, map[string]uint64{"forward_syn": 101, "pass_no_endpoint": 70}, at(3))
	look(4, map[string]uint64{"forward_syn": 101, "pass_no_endpoint": 90}, at(3))
	look(5, map[string]uint64{"forward_syn": 101, "drop_no_backend": 1}, at(5)) // dropped, but it came
	look(6, map[string]uint64{}, at(5))                                         // counters begin anew
	look(7, map[string]uint64{"reply_echo": 1}, at(7))
}
