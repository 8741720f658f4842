package fastpath

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

func drawMessage(t *rapid.T) Message {
	address := func(v4 bool, name string) netip.Addr {
		if v4 {
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, name)))
		}
		return netip.AddrFrom16([16]byte(append([]byte{0x20, 1}, rapid.SliceOfN(rapid.Byte(), 14, 14).Draw(t, name)...)))
	}
	inner, outer := rapid.Bool().Draw(t, "inner"), rapid.Bool().Draw(t, "outer")
	port := rapid.Uint16()
	return Message{
		Kind: rapid.SampledFrom([]Kind{Redirect, Ready, Gone}).Draw(t, "kind"),
		Connection: Connection{
			Protocol: rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP}).Draw(t, "protocol"),
			Client:   netip.AddrPortFrom(address(inner, "client"), port.Draw(t, "client port")),
			Server:   netip.AddrPortFrom(address(inner, "server"), port.Draw(t, "server port")),
		},
		Client: address(outer, "client tunnel"), Server: address(outer, "server tunnel"),
		Want: rapid.Bool().Draw(t, "want"), ToClient: rapid.Bool().Draw(t, "to client"),
		Nonce: rapid.Uint64().Draw(t, "nonce"), Expires: time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "expires")),
	}
}

func key(id uint32, secret byte) model.FastpathKey {
	return model.FastpathKey{ID: id, Secret: [32]byte{secret}}
}

func TestMessagesComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		got, err := Open(Seal(m, key(7, 1)), []model.FastpathKey{key(6, 2), key(7, 1)})
		if err != nil || got != m {
			t.Fatalf("%v, %v; sent %v", got, err, m)
		}
	})
}

func TestEveryChangedByteIsNoticed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sealed := Seal(drawMessage(t), key(7, 1))
		at := rapid.IntRange(0, Size-1).Draw(t, "at")
		sealed[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		if m, err := Open(sealed, []model.FastpathKey{key(7, 1)}); err == nil {
			t.Fatalf("byte %d changed, and %v was read", at, m)
		}
	})
}

func FuzzOpen(f *testing.F) {
	keys := []model.FastpathKey{key(7, 1)}
	f.Add([]byte{})
	f.Add(Seal(Message{Kind: Redirect, Connection: Connection{Protocol: model.TCP}}, keys[0]))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Open(b, keys)
		if err == nil && string(Seal(m, keys[0])) != string(b) {
			t.Errorf("%x was read as %v", b, m)
		}
	})
}

func TestGuard(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	keys := []model.FastpathKey{key(1, 1), key(2, 2)}
	message := func(change func(*Message)) Message {
		m := Message{
			Kind: Redirect, Expires: now.Add(Lifetime), Nonce: 1,
			Connection: Connection{Protocol: model.TCP, Client: netip.MustParseAddrPort("203.0.113.20:1024"), Server: netip.MustParseAddrPort("203.0.113.10:80")},
			Client:     netip.MustParseAddr("10.1.0.2"), Server: netip.MustParseAddr("10.1.0.9"),
		}
		if change != nil {
			change(&m)
		}
		return m
	}
	for _, c := range []struct {
		name   string
		sealed []byte
		want   error
	}{
		{"fresh", Seal(message(nil), keys[0]), nil},
		{"of the next key", Seal(message(nil), keys[1]), nil},
		{"of a key that is gone", Seal(message(nil), key(3, 3)), ErrKey},
		{"of another's secret", Seal(message(nil), key(1, 9)), ErrForged},
		{"short", Seal(message(nil), keys[0])[:Size-1], ErrMalformed},
		{"of a clock that is slow", Seal(message(func(m *Message) { m.Expires = now.Add(-Skew) }), keys[0]), nil},
		{"expired", Seal(message(func(m *Message) { m.Expires = now.Add(-Skew - time.Millisecond) }), keys[0]), ErrExpired},
		{"of the future", Seal(message(func(m *Message) { m.Expires = now.Add(Lifetime + Skew + time.Millisecond) }), keys[0]), ErrExpired},
		{"between families", Seal(message(func(m *Message) { m.Client = netip.MustParseAddr("2001:db8::1") }), keys[0]), ErrMalformed},
		{"of no kind", Seal(message(func(m *Message) { m.Kind = 4 }), keys[0]), ErrMalformed},
	} {
		var g Guard
		if _, err := g.Open(c.sealed, keys, now); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestAMessageIsOpenedOnce(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	keys := []model.FastpathKey{key(1, 1)}
	m := Message{Kind: Ready, Connection: Connection{Protocol: model.TCP}, Expires: now.Add(Lifetime)}
	sealed := Seal(m, keys[0])
	var g Guard
	if _, err := g.Open(sealed, keys, now); err != nil {
		t.Fatal(err)
	}
	for _, later := range []time.Duration{0, time.Second, Lifetime, Lifetime + Skew} {
		if _, err := g.Open(sealed, keys, now.Add(later)); !errors.Is(err, ErrReplayed) {
			t.Errorf("again after %s: %v", later, err)
		}
	}
	if _, err := g.Open(sealed, keys, now.Add(Lifetime+Skew+time.Second)); !errors.Is(err, ErrExpired) {
		t.Errorf("after it is forgotten: %v", err)
	}
	if len(g.seen) != 1 {
		t.Errorf("%d are remembered", len(g.seen))
	}
	g.forget(now.Add(time.Minute))
	if len(g.seen) != 0 {
		t.Errorf("%d are remembered for ever", len(g.seen))
	}
}
