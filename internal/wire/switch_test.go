package wire

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

func TestUpdatesOfSwitchesSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		address := rapid.Custom(func(t *rapid.T) netip.Addr {
			b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address")
			if rapid.Bool().Draw(t, "v4") {
				return netip.AddrFrom4([4]byte(b[:4]))
			}
			return netip.AddrFrom16([16]byte(append([]byte{0xfd}, b[1:]...)))
		})
		member := rapid.Custom(func(t *rapid.T) SwitchMember {
			return SwitchMember{Tunnel: address.Draw(t, "tunnel"), Entries: rapid.Uint32Min(1).Draw(t, "entries"), TIP: rapid.Bool().Draw(t, "member is a TIP")}
		})
		entry := rapid.Custom(func(t *rapid.T) SwitchEntry {
			e := SwitchEntry{VIP: address.Draw(t, "vip"), Members: rapid.SliceOfN(member, 1, 4).Draw(t, "members"), Announce: rapid.Bool().Draw(t, "announce")}
			if rapid.Bool().Draw(t, "tip") {
				e.Inner = address.Draw(t, "inner")
				if n := rapid.IntRange(0, 3).Draw(t, "sources"); n > 0 {
					e.Sources = rapid.SliceOfN(address, n, n).Draw(t, "source")
				}
			}
			return e
		})
		u := SwitchUpdate{Generation: model.Generation(rapid.Uint64().Draw(t, "generation")), Snapshot: rapid.Bool().Draw(t, "snapshot")}
		if n := rapid.IntRange(0, 3).Draw(t, "entries"); n > 0 {
			u.Entries = rapid.SliceOfN(entry, n, n).Draw(t, "entry")
			u.Removed = rapid.SliceOfN(address, n, n).Draw(t, "removed")
		}
		got, err := SwitchUpdateFromProto(SwitchUpdateToProto(u))
		if err != nil || !reflect.DeepEqual(got, u) {
			t.Fatalf("%+v became %+v, %v", u, got, err)
		}
	})
}

func TestWrongUpdatesOfSwitchesAreRefused(t *testing.T) {
	_, err := SwitchUpdateFromProto(&weirv1.SyncSwitchResponse{
		Removed: []string{"x"}, Entries: []*weirv1.SwitchEntry{nil, {Vip: "203.0.113.1", Inner: "x", Sources: []string{"x"}, Members: []*weirv1.SwitchMember{{Tunnel: "::ffff:10.0.0.1"}}}},
	})
	var got []string
	for _, e := range model.FieldErrors(err) {
		got = append(got, e.Field)
	}
	want := []string{"entries[0].vip", "entries[0].members", "entries[1].inner", "entries[1].sources[0]", "entries[1].members[0].tunnel", "entries[1].members[0].entries", "removed[0]"}
	if !slices.Equal(got, want) {
		t.Errorf("refused %q, want %q", got, want)
	}
}
