package wire

import (
	"slices"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// What is no difference to the list that the stream told before is refused with the field that is wrong, for muxes and
// hosts alike.
func TestDeltasThatDoNotFitAreRefused(t *testing.T) {
	const vip, address = "203.0.113.20", "10.1.0.2"
	for name, c := range map[string]struct {
		delta   *weirv1.RangesDelta
		written uint64
		ranges  []uint32
		address string
		field   string
	}{
		"of a list that was not told":    {delta: &weirv1.RangesDelta{After: 6, Added: []uint32{9}}, field: "snat[0].delta.after: must be 7"},
		"of a workload that was not":     {address: "10.1.0.3", delta: &weirv1.RangesDelta{After: 7}, field: "snat[0].delta.after: is 7"},
		"after no list":                  {address: "10.1.0.3", delta: &weirv1.RangesDelta{Added: []uint32{9}}, field: "snat[0].delta.after"},
		"written before":                 {written: 6, delta: &weirv1.RangesDelta{After: 7, Added: []uint32{9}}, field: "snat[0].delta.after: must be before 6"},
		"of one write with another list": {written: 7, delta: &weirv1.RangesDelta{After: 7, Added: []uint32{9}}, field: "snat[0].delta.after: must be before 7"},
		"adds what it has":               {delta: &weirv1.RangesDelta{After: 7, Added: []uint32{4}}, field: "snat[0].delta.added: has 4"},
		"removes what it has not":        {delta: &weirv1.RangesDelta{After: 7, Removed: []uint32{5}}, field: "snat[0].delta.removed: has 5"},
		"moves a range to itself":        {delta: &weirv1.RangesDelta{After: 7, Added: []uint32{4}, Removed: []uint32{4}}, field: "snat[0].delta.added: has 4"},
		"adds beyond the last":           {delta: &weirv1.RangesDelta{After: 7, Added: []uint32{8192}}, field: "snat[0].delta.added[0]"},
		"adds twice":                     {delta: &weirv1.RangesDelta{After: 7, Added: []uint32{9, 9}}, field: "snat[0].delta.added[1]"},
		"removes out of order":           {delta: &weirv1.RangesDelta{After: 7, Removed: []uint32{8, 4}}, field: "snat[0].delta.removed[1]"},
		"beside a list":                  {ranges: []uint32{1}, delta: &weirv1.RangesDelta{After: 7}, field: "snat[0].ranges"},
	} {
		if c.written == 0 {
			c.written = 8
		}
		if c.address == "" {
			c.address = address
		}
		var muxes, hosts PortLists
		whole := []uint32{2, 4, 8}
		for _, err := range []error{
			muxes.CompleteMux(&weirv1.SyncMuxResponse{Snapshot: true, Snat: []*weirv1.MuxSNAT{{Vip: vip, Address: address, Written: 7, Ranges: whole}}}),
			hosts.CompleteHost(&weirv1.SyncHostResponse{SnatSnapshot: true, Snat: []*weirv1.HostSNAT{{Vip: vip, Address: address, Written: 7, Ranges: whole}}}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for node, err := range map[string]error{
			"mux":  muxes.CompleteMux(&weirv1.SyncMuxResponse{Snat: []*weirv1.MuxSNAT{{Vip: vip, Address: c.address, Written: c.written, Ranges: c.ranges, Delta: c.delta}}}),
			"host": hosts.CompleteHost(&weirv1.SyncHostResponse{Snat: []*weirv1.HostSNAT{{Vip: vip, Address: c.address, Written: c.written, Ranges: c.ranges, Delta: c.delta}}}),
		} {
			if err == nil || !strings.HasPrefix(err.Error(), c.field) {
				t.Errorf("%s: a %s is told: %v, want %s", name, node, err, c.field)
			}
		}
	}
}

// A delta becomes the whole list, and the next one follows it.
func TestDeltasBecomeWholeLists(t *testing.T) {
	var lists PortLists
	for i, step := range []struct {
		told *weirv1.MuxSNAT
		want []uint32
	}{
		{&weirv1.MuxSNAT{Written: 7, Ranges: []uint32{2, 4, 8}}, []uint32{2, 4, 8}},
		{&weirv1.MuxSNAT{Written: 9, Delta: &weirv1.RangesDelta{After: 7, Added: []uint32{1, 5, 8191}, Removed: []uint32{4}}}, []uint32{1, 2, 5, 8, 8191}},
		{&weirv1.MuxSNAT{Written: 9, Tenant: "acme", Delta: &weirv1.RangesDelta{After: 9}}, []uint32{1, 2, 5, 8, 8191}},
		{&weirv1.MuxSNAT{Written: 10, Delta: &weirv1.RangesDelta{After: 9, Removed: []uint32{1, 8191}}}, []uint32{2, 5, 8}},
	} {
		step.told.Vip, step.told.Address = "203.0.113.20", "10.1.0.2"
		message := &weirv1.SyncMuxResponse{Snapshot: i == 0, Snat: []*weirv1.MuxSNAT{step.told}}
		if err := lists.CompleteMux(message); err != nil || !slices.Equal(step.told.GetRanges(), step.want) || step.told.Delta != nil {
			t.Errorf("%d: is told %v: %v", i, step.told, err)
		}
	}
	removed := &weirv1.SyncMuxResponse{SnatRemoved: []*weirv1.SNATKey{{Vip: "203.0.113.20", Address: "10.1.0.2"}}}
	again := &weirv1.SyncMuxResponse{Snat: []*weirv1.MuxSNAT{{Vip: "203.0.113.20", Address: "10.1.0.2", Written: 11, Delta: &weirv1.RangesDelta{After: 10}}}}
	if err := lists.CompleteMux(removed); err != nil {
		t.Error(err)
	}
	if err := lists.CompleteMux(again); err == nil {
		t.Error("a delta follows the list of a workload that was removed")
	}
}
