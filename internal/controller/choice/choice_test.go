package choice

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
	"github.com/weirlb/weir/internal/testkit/teststore"
)

// An external etcd takes what was decided on more VIPs than it takes operations in one transaction.
func TestDecisionsOnManyVIPsInAnExternalEtcd(t *testing.T) {
	s := teststore.Open(t, etcdtest.Start(t))
	var all []decision
	var vips []model.VIP
	for i := range 2*etcd.SafeOperations + 50 {
		vip := wide(i%250, 1)
		vip.Name, vip.Address = fmt.Sprint("vip", i), netip.AddrFrom4([4]byte{203, 0, byte(113 + i/250), byte(i % 250)})
		vips, all = append(vips, vip), append(all, decision{vip: vip.Name, unplaced: "there is no fabric"})
	}
	for some := range slices.Chunk(vips, etcd.SafeOperations) {
		if _, err := s.Update(t.Context(), func(*store.State) (store.Change, error) { return store.Change{VIPs: some}, nil }); err != nil {
			t.Fatal(err)
		}
	}
	c := &Controller{Store: s, Log: slog.New(slog.DiscardHandler)}
	if err := c.write(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if n := len(slices.Collect(s.State().Placements.Keys())); n != len(all) {
		t.Errorf("%d decisions are written, of %d", n, len(all))
	}
}
