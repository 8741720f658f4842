package syncookie

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

func drawFlow(t *rapid.T) Flow {
	v4 := rapid.Bool().Draw(t, "v4")
	address := func(name string) netip.Addr {
		if v4 {
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, name)))
		}
		return netip.AddrFrom16([16]byte(append([]byte{0x20, 1}, rapid.SliceOfN(rapid.Byte(), 14, 14).Draw(t, name)...)))
	}
	port := rapid.Uint16()
	return Flow{
		Client: netip.AddrPortFrom(address("client"), port.Draw(t, "client port")),
		VIP:    netip.AddrPortFrom(address("vip"), port.Draw(t, "vip port")),
		ISN:    rapid.Uint32().Draw(t, "isn"),
	}
}

func drawOffer(t *rapid.T) Offer {
	o := Offer{MSS: rapid.Uint16().Draw(t, "mss"), Timestamps: rapid.Bool().Draw(t, "timestamps"), Scale: NoScale}
	if o.Timestamps {
		o.Scale = rapid.IntRange(NoScale, 14).Draw(t, "scale")
		o.SACK = rapid.Bool().Draw(t, "sack")
	}
	return o
}

func drawTime(t *rapid.T) time.Time {
	return time.Unix(0, rapid.Int64Range(1<<60, 1<<62).Draw(t, "time"))
}

func secret(id uint32) model.SYNSecret {
	return model.SYNSecret{ID: id, Secret: [16]byte{byte(id), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}}
}

func TestACookieIsRightUntilTheNextTickEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, o, made := drawFlow(t), drawOffer(t), drawTime(t)
		id := rapid.Uint32Range(2, 1<<31).Draw(t, "id")
		cookie := Make(secret(id), f, o, made)
		_, mss := Class(o.MSS)
		known := []model.SYNSecret{secret(id - 1), secret(id), secret(id + 1)}
		for ticks, want := range map[time.Duration]error{-2: ErrOld, -1: nil, 0: nil, 1: nil, 2: ErrOld} {
			got, err := Check(known, f, cookie, o, made.Add(ticks*Tick))
			if !errors.Is(err, want) || err == nil && got != mss {
				t.Fatalf("%d ticks later: %d, %v; it had %d", ticks, got, err, mss)
			}
		}
		if _, err := Check([]model.SYNSecret{secret(id + 1), secret(id + 2)}, f, cookie, o, made); !errors.Is(err, ErrOld) {
			t.Fatalf("of a secret that is gone: %v", err)
		}
	})
}

// Each bit counts, of the cookie and of what it is about. One try in 2^25 would get through, so what
// does is tried with a second secret.
func TestAForgedCookieIsRefused(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, o, made := drawFlow(t), drawOffer(t), drawTime(t)
		bit := rapid.IntRange(0, 31).Draw(t, "bit")
		what := rapid.SampledFrom([]string{"cookie", "isn", "client", "vip", "sack", "timestamps"}).Draw(t, "what")
		passed := 0
		for id := uint32(4); id <= 8; id += 4 {
			g, offer, cookie := f, o, Make(secret(id), f, o, made)
			switch what {
			case "cookie":
				cookie ^= 1 << bit
			case "isn":
				g.ISN ^= 1 << bit
			case "client":
				g.Client = netip.AddrPortFrom(f.Client.Addr(), f.Client.Port()^1<<(bit&15))
			case "vip":
				g.VIP = netip.AddrPortFrom(f.VIP.Addr().Next(), f.VIP.Port())
			case "sack":
				offer.Timestamps, offer.SACK = true, !o.SACK
			case "timestamps":
				offer = Offer{MSS: o.MSS, Timestamps: !o.Timestamps, Scale: NoScale}
			}
			if _, err := Check([]model.SYNSecret{secret(id)}, g, cookie, offer, made); err == nil {
				passed++
			}
		}
		if passed == 2 {
			t.Fatalf("another %s passes", what)
		}
	})
}

func TestTheOfferComesBackInTheTimestamp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, now := drawOffer(t), drawTime(t)
		slot := model.Slot(rapid.Uint16Range(0, 8191).Draw(t, "slot"))
		o.Timestamps = true
		value := TSval(o, slot, now)
		want := o
		want.MSS = 0
		if got := OfferOf(value); got != want || model.Slot(value&8191) != slot {
			t.Fatalf("%+v and slot %d came back of %+v and %d", got, value&8191, want, slot)
		}
		if later := TSval(o, slot, now.Add(time.Second)); int32(later-value) <= 0 {
			t.Fatalf("a second later %#x follows %#x", later, value)
		}
	})
}

// A cookie that was once made stays the same: a pool's muxes and hosts may be of two versions.
func TestCookiesStayAsTheyAre(t *testing.T) {
	v4 := Flow{Client: netip.MustParseAddrPort("198.51.100.7:40000"), VIP: netip.MustParseAddrPort("203.0.113.10:80"), ISN: 0x12345678}
	v6 := Flow{Client: netip.MustParseAddrPort("[2001:db8::7]:40000"), VIP: netip.MustParseAddrPort("[2001:db8:10::1]:80"), ISN: 0x12345678}
	now := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		flow  Flow
		offer Offer
		want  uint32
	}{
		{v4, Offer{MSS: 1460, Timestamps: true, Scale: 7, SACK: true}, 0x3faea7be},
		{v4, Offer{MSS: 536, Scale: NoScale}, 0xd960a738},
		{v6, Offer{MSS: 1440, Timestamps: true, Scale: NoScale}, 0x463bd53d},
	} {
		if got := Make(secret(1), c.flow, c.offer, now); got != c.want {
			t.Errorf("%v with %+v: %#08x, want %#08x", c.flow, c.offer, got, c.want)
		}
	}
}
