package syncookie

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/syncookie"
)

// C and Go make the same cookies, and refuse the same.
func TestTheTwinsAgree(t *testing.T) {
	twin, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer twin.Close()
	rapid.Check(t, func(t *rapid.T) {
		q, offer := draw(t)
		got, err := twin.Ask(q)
		if err != nil {
			t.Fatal(err)
		}
		if want := syncookie.Make(q.Secret, q.Flow, offer, q.Made); got.Cookie != want {
			t.Fatalf("cookie %#08x, in Go %#08x", got.Cookie, want)
		}
		if want := syncookie.TSval(offer, q.Slot, q.Made); got.TSval != want {
			t.Fatalf("TSval %#08x, in Go %#08x", got.TSval, want)
		}
		if offer.Timestamps && got.Kept != q.Options {
			t.Fatalf("options %#x come back as %#x", q.Options, got.Kept)
		}
		mss, err := syncookie.Check([]model.SYNSecret{q.Secret}, q.Flow, got.Cookie^q.Flip, offer, q.Checked)
		// Bits that say of which secret it is, are the caller's to look at.
		if q.Flip&0x60 != 0 {
			return
		}
		want := int32(mss)
		switch {
		case errors.Is(err, syncookie.ErrForged):
			want = -1
		case errors.Is(err, syncookie.ErrOld):
			want = -2
		}
		if got.MSS != want {
			t.Fatalf("checked as %d, in Go %d (%v)", got.MSS, want, err)
		}
	})
}

// draw draws a question and the offer that it is about.
func draw(t *rapid.T) (Question, syncookie.Offer) {
	v4 := rapid.Bool().Draw(t, "v4")
	endpoint := func(name string) netip.AddrPort {
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name)
		port := rapid.Uint16().Draw(t, name+" port")
		if v4 {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), port)
		}
		b[0] = 0x20
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)), port)
	}
	q := Question{
		Flow: syncookie.Flow{Client: endpoint("client"), VIP: endpoint("vip"), ISN: rapid.Uint32().Draw(t, "isn")},
		MSS:  rapid.OneOf(rapid.Uint16(), rapid.Uint16Range(1200, 1480)).Draw(t, "mss"),
		Slot: model.Slot(rapid.Uint16Range(0, 8191).Draw(t, "slot")),
		Made: time.Unix(0, rapid.Int64Range(1<<60, 1<<62).Draw(t, "made")),
	}
	if rapid.Bool().Draw(t, "of a network") {
		q.Flow.VNI = rapid.Uint32Range(1, 1<<24-1).Draw(t, "vni")
	}
	q.Secret.ID = rapid.Uint32Min(1).Draw(t, "id")
	copy(q.Secret.Secret[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "secret"))
	q.Checked = q.Made.Add(time.Duration(rapid.IntRange(-2, 2).Draw(t, "ticks")) * syncookie.Tick)
	if rapid.Bool().Draw(t, "forged") {
		q.Flip = 1 << rapid.IntRange(0, 31).Draw(t, "bit")
	}
	offer := syncookie.Offer{MSS: q.MSS, Scale: syncookie.NoScale}
	if rapid.Bool().Draw(t, "timestamps") {
		offer.Timestamps, offer.SACK = true, rapid.Bool().Draw(t, "sack")
		offer.Scale = rapid.IntRange(syncookie.NoScale, 14).Draw(t, "scale")
		q.Options = 32 | uint32(offer.Scale)&15
		if offer.SACK {
			q.Options |= 16
		}
	}
	return q, offer
}
