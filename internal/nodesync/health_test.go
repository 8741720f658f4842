package nodesync

import (
	"maps"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

func TestMergeKeepsWhatIsTheHostsAndChecked(t *testing.T) {
	said := func(port uint16) (desired.HealthKey, model.BackendHealth) {
		h := model.BackendHealth{Backend: netip.AddrPortFrom(netip.MustParseAddr("10.3.1.11"), port), Health: model.HealthHealthy}
		return desired.HealthKey{Backend: h.Backend}, h
	}
	kept, keptHealth := said(1)
	gone, goneHealth := said(2)
	unchecked, uncheckedHealth := said(3)
	fresh, freshHealth := said(4)
	_, foreign := said(5)
	checked := map[desired.HealthKey]bool{kept: true, fresh: true}
	got := mergeHealth(desired.HostHealth{kept: keptHealth, gone: goneHealth, unchecked: uncheckedHealth},
		[]model.BackendHealth{freshHealth, foreign}, checked)
	if want := (desired.HostHealth{kept: keptHealth, fresh: freshHealth}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
