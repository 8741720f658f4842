package limit

import (
	"testing"

	"github.com/weirlb/weir/internal/model"
)

func TestBuckets(t *testing.T) {
	for _, c := range []struct {
		rate, muxes, unit, cost, most uint64
	}{
		{0, 4, 1, 0, 0},
		{1000, 1, 1, 1e6 << 16, 1e8},
		{1000, 4, 1, 4e6 << 16, 1e8},
		{1, 1, 1, 1e9 << 16, 1e9},
		{1, 1 << 20, mostFrame, mostCost, mostCost},
		{125_000_000, 1, mostFrame, 8 << 16, 1e8},
		{model.MaxLimit, 1, mostFrame, 65, 1e8},
	} {
		cost, most := bucketOf(c.rate, c.muxes, c.unit)
		if cost != c.cost || most != c.most {
			t.Errorf("%+v: cost %d, most %d", c, cost, most)
		}
		if full := most + cost>>16*c.unit; full < most || cost*c.unit/max(c.unit, 1) != cost {
			t.Errorf("%+v overflows", c)
		}
	}
}
