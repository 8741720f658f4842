package table

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/cluster"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// News of health is acted on between the pieces of the look at all VIPs that a term begins with.
func TestNewsComeBetweenPieces(t *testing.T) {
	opened, err := cluster.Open(t.Context(), cluster.Config{Config: etcd.Config{DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}})
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- opened.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	s := opened.Store.State()
	all := s.Clone()
	for i := range 2*recomputeMost + 1 {
		all.VIPs.Set(time.Duration(i).String(), model.VIP{})
	}
	var r rounds
	if news := r.news(all); len(news) > 0 || len(r.piece()) != recomputeMost {
		t.Errorf("a term begins with %d news, %d VIPs of all", len(news), len(r.piece()))
	}
	r.did(s) // which knows the steps that follow
	if !r.swept() {
		t.Error("all is done after one piece")
	}
	vip := model.VIP{Name: "shop", Tenant: "acme", Address: netip.MustParseAddr("203.0.113.10")}
	if _, err := opened.Store.Update(t.Context(), func(*store.State) (store.Change, error) {
		return store.Change{VIPs: []model.VIP{vip}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	if news := r.news(opened.Store.State()); len(news) != 1 || news[0] != "shop" || len(r.piece()) != recomputeMost {
		t.Errorf("then %v are news, beside %d of all", news, len(r.piece()))
	}
	r.did(opened.Store.State())
	if !r.swept() || len(r.piece()) != 1 || r.swept() {
		t.Error("it does not come to the end")
	}
}
