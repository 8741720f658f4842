package switchconfig

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/placementpolicy"
)

// However many switches had the VIP in the last minutes, a TIP takes packets from as many as any switch lists: those that may
// hold an entry, and of the others the latest.
func TestSendersAreBounded(t *testing.T) {
	s, state := desired.State{}, placementpolicy.State{Places: map[string]placementpolicy.Place{}}
	add := func(i int, phase placementpolicy.Phase) netip.Addr {
		name, address := fmt.Sprintf("sw%03d", i), netip.AddrFrom4([4]byte{10, 1, byte(i / 250), byte(i % 250)})
		s.PutNode(model.Node{Name: name, Role: model.RoleSwitch, Addresses: []netip.Addr{address, netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i))}})
		state.Places[name] = placementpolicy.Place{Phase: phase, Since: time.Unix(int64(i), 0)}
		return address
	}
	tip, old := netip.MustParseAddr("192.0.2.1"), add(0, placementpolicy.Removing)
	preparing, oldest := add(1, placementpolicy.Preparing), add(2, placementpolicy.Leaving)
	latest := oldest
	for i := range hardware.MaxSources {
		latest = add(3+i, placementpolicy.Leaving)
	}
	got := SendersTo(s, state, tip)
	if len(got) != hardware.MaxSources || !slices.IsSortedFunc(got, netip.Addr.Compare) {
		t.Errorf("%d outer sources, in order %v", len(got), slices.IsSortedFunc(got, netip.Addr.Compare))
	}
	for _, a := range []netip.Addr{old, preparing, latest} {
		if !slices.Contains(got, a) {
			t.Errorf("not from %s", a)
		}
	}
	if slices.Contains(got, oldest) {
		t.Errorf("from %s, which has lost its entry first", oldest)
	}
}
