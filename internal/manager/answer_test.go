package manager

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// onceApplied is a log that has something done when the first VIP was written, before that call is answered.
type onceApplied struct {
	slog.Handler
	do *atomic.Pointer[func()]
}

func (o onceApplied) Enabled(context.Context, slog.Level) bool { return true }

func (o onceApplied) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "VIP applied" {
		if do := o.do.Swap(nil); do != nil {
			(*do)()
		}
	}
	return o.Handler.Handle(ctx, r)
}

// The answer to a write tells what that call wrote, and the version of it, though another call has written the VIP, or
// deleted it, before it is answered: who goes on with that one's version would replace what it never saw.
func TestAnswersAreOfTheirOwnWrites(t *testing.T) {
	var meanwhile atomic.Pointer[func()]
	url, _ := start(t, Config{Log: slog.New(onceApplied{slog.DiscardHandler, &meanwhile})})
	client := dial(t, url)
	startHost(t, url, "host1", "10.2.1.2", "fd00:2::1")
	startHost(t, url, "host2", "10.2.2.2", "fd00:2::2")
	eventually(t, "hosts are registered", func() bool { return nodes(t, client) == 2 })
	apply(t, url, shop())
	write := func(by string) *weirv1.UpdateVIPResponse {
		t.Helper()
		vip := shop()
		vip.Labels = map[string]string{"by": by}
		answer, err := client.UpdateVIP(t.Context(), &weirv1.UpdateVIPRequest{Name: vip.GetName(), Vip: vip})
		if err != nil {
			t.Fatal(err)
		}
		if got := answer.GetVip(); got.GetLabels()["by"] != by || got.GetResourceVersion() != answer.GetGeneration() {
			t.Errorf("%s was written in generation %d, and the answer is %s in version %d", by, answer.GetGeneration(), got.GetLabels()["by"], got.GetResourceVersion())
		}
		return answer
	}
	another := func() { write("another") }
	meanwhile.Store(&another)
	if write("one"); meanwhile.Load() != nil {
		t.Fatal("nothing came between the write and its answer")
	}
	deleted := func() {
		if _, err := client.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "shop"}); err != nil {
			t.Error(err)
		}
	}
	meanwhile.Store(&deleted)
	write("one that is deleted")
	apply(t, url, shop())
	before, err := client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := client.UpdateVIP(t.Context(), &weirv1.UpdateVIPRequest{Name: "shop", Vip: before.GetVip()})
	if err != nil || again.GetVip().GetResourceVersion() != before.GetVip().GetResourceVersion() {
		t.Errorf("the same again is %v, %v", again.GetVip(), err)
	}
}
