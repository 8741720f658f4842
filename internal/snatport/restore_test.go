package snatport

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// restored are a VIP as which workloads leave that live on host1, host1 and host2, and their ranges by the backup.
func restored(backup ...Allocation) (Allocations, model.VIP, []model.SNATKey) {
	vip := model.VIP{
		Name: "crawler", Address: netip.MustParseAddr("203.0.113.20"), SNAT: &model.SNAT{MaxPorts: 4 * model.RangePorts},
	}
	var keys []model.SNATKey
	for i, host := range []string{"host1", "host1", "host2"} {
		address := netip.AddrFrom4([4]byte{10, 3, 1, byte(i + 1)})
		vip.SNAT.Workloads = append(vip.SNAT.Workloads, model.SNATWorkload{Address: address, Host: host})
		keys = append(keys, model.SNATKey{VIP: vip.Address, Address: address})
	}
	var a Allocations
	a.ReplaceVIP(model.VIP{}, vip)
	for i, h := range backup {
		a.Set(keys[i], h)
	}
	return a, vip, keys
}

func TestPortsAreTakenOver(t *testing.T) {
	now := time.Now()
	a, vip, keys := restored(
		Allocation{Host: "host1", Ranges: []model.Range{10, 11}, Reclaim: []model.Range{10}, Quarantined: []Quarantined{{now, []model.Range{40, 41}}}},
		Allocation{Host: "host1", Ranges: []model.Range{20}},
		Allocation{Host: "host2", Ranges: []model.Range{30, 31}})
	unlisted := model.SNATKey{VIP: keys[0].VIP, Address: netip.MustParseAddr("10.3.1.99")}
	block := model.BlockKey(keys[0].VIP, "host1")
	told := map[model.SNATKey][]Reported{
		keys[0]:  {{Host: "host1", Ranges: []model.Range{10, 40}}},                     // gave 11 back, got 40 which rested
		keys[1]:  {{Host: "host1", Ranges: []model.Range{10, 20, 30, 50, 51, 52, 53}}}, // claims 10 of another, got 30 of one that is away, more than it may
		keys[2]:  {{Host: "host1", Ranges: []model.Range{60}}},                         // lives on host2 by the backup
		unlisted: {{Host: "host2", Ranges: []model.Range{70}}},
		block: {
			{Host: "host1", Ranges: []model.Range{10, 80, 81, 82, 83, 84, 85}}, // claims a workload's own, and more than 8 less the 3 of these
			{Host: "host2", Ranges: []model.Range{90}},                         // is not its own
		},
	}
	next := a.Restore(vip.Address, vip, told, now)
	quarantined := func(ranges ...model.Range) []Quarantined { return []Quarantined{{now, ranges}} }
	for key, want := range map[model.SNATKey]Allocation{
		keys[0]:  {Host: "host1", Ranges: []model.Range{10, 40}, Reclaim: []model.Range{10}, Quarantined: append(quarantined(11), quarantined(41)...)},
		keys[1]:  {Host: "host1", Ranges: []model.Range{20, 30, 50, 51}, Quarantined: quarantined(52, 53)},
		keys[2]:  {Host: "host2", Ranges: []model.Range{31}, Quarantined: quarantined(60)},
		unlisted: {Host: "host2", Quarantined: quarantined(70)},
		block:    {Host: "host1", Ranges: []model.Range{80, 81, 82, 83, 84}, Quarantined: append(quarantined(85), quarantined(90)...)},
	} {
		if got := next[key]; !got.Equal(want) {
			t.Errorf("%s has %+v, want %+v", key.Address, got, want)
		}
	}
	for key, h := range next {
		a.Set(key, h)
	}
	if n := a.DoublyAllocated(keys[0].VIP).Len(); n > 0 {
		t.Errorf("%d ranges are in two hands", n)
	}
}
