package status

import (
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// A mux that takes back what it said, each second, does not have all VIPs looked at each time.
func TestWhatMuxesTakeBackIsPaced(t *testing.T) {
	n := comparison{Controller: &Controller{Interval: time.Second}, last: &store.State{}, muxes: muxFloor{connected: 1, floor: 10}}
	now, looks := time.Unix(1000, 0), 0
	for i := range 100 {
		now = now.Add(time.Second)
		said := n.paced(muxFloor{connected: 1, floor: model.Generation(10 - i%2), refused: model.Generation(i)}, now)
		if said.floor < n.muxes.floor || said.refused != n.muxes.refused {
			looks++
		}
		n.muxes = said
	}
	if looks < 5 || looks > 11 {
		t.Errorf("in 100 s all VIPs were looked at %d times", looks)
	}
	if n.paced(muxFloor{connected: 1, floor: 11, refused: n.muxes.refused}, now).floor != 11 {
		t.Error("what goes up waits")
	}
}
