package fbt

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var testKey = Key{Secret: [16]byte{1, 2, 3}, ID: 5}

func drawAddress(t *rapid.T, name string, v4 bool) netip.Addr {
	b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name)
	if v4 {
		return netip.AddrFrom4([4]byte(b))
	}
	b[0] = 0x20
	return netip.AddrFrom16([16]byte(b))
}

func drawSegment(t *rapid.T) Segment {
	v4 := rapid.Bool().Draw(t, "inner v4")
	end := func(name string) netip.AddrPort {
		return netip.AddrPortFrom(drawAddress(t, name, v4), rapid.Uint16().Draw(t, name+" port"))
	}
	return Segment{
		Outer:  drawAddress(t, "outer", rapid.Bool().Draw(t, "outer v4")),
		Client: end("client"), VIP: end("vip"), Seq: rapid.Uint32().Draw(t, "seq"),
	}
}

func drawContent(t *rapid.T) Content {
	c := Content{VNI: rapid.Uint32Range(0, 1<<24-1).Draw(t, "vni"), Via: rapid.Bool().Draw(t, "via")}
	if rapid.Bool().Draw(t, "numbered") {
		c.Number = rapid.Uint32().Draw(t, "number")
	} else {
		c.Host = drawAddress(t, "host", true)
	}
	return c
}

func TestAnOptionSaysWhatWasEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, c := drawSegment(t), drawContent(t)
		got, err := Check([]Key{{ID: 4}, testKey, {ID: 6}}, s, Encode(testKey, s, c))
		if err != nil || got != c {
			t.Fatalf("%+v, %v, not %+v", got, err, c)
		}
		if _, err := Check([]Key{{ID: 4}, {ID: 6}}, s, Encode(testKey, s, c)); !errors.Is(err, ErrKey) {
			t.Fatalf("of a key that is gone: %v", err)
		}
	})
}

// One try in 2^32 would get through.
func TestEachBitOfTheOptionCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSegment(t)
		option := Encode(testKey, s, drawContent(t))
		bit := rapid.IntRange(0, 8*Length-1).Draw(t, "bit")
		option[bit/8] ^= 1 << (bit % 8)
		if _, err := Check([]Key{testKey}, s, option); err == nil {
			t.Fatalf("with bit %d turned over it passes", bit)
		}
	})
}

func TestTheSegmentCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSegment(t)
		option := Encode(testKey, s, drawContent(t))
		other := s
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			other.Outer = s.Outer.Next()
		case 1:
			other.Seq++
		case 2:
			other.Client = netip.AddrPortFrom(s.Client.Addr().Next(), s.Client.Port())
		case 3:
			other.Client = netip.AddrPortFrom(s.Client.Addr(), s.Client.Port()+1)
		case 4:
			other.VIP = netip.AddrPortFrom(s.VIP.Addr().Prev(), s.VIP.Port())
		case 5:
			other.VIP = netip.AddrPortFrom(s.VIP.Addr(), s.VIP.Port()-1)
		}
		if other.Outer.IsValid() && other.VIP.Addr().IsValid() && other.Client.Addr().IsValid() {
			if _, err := Check([]Key{testKey}, other, option); !errors.Is(err, ErrForged) {
				t.Fatalf("of another segment: %v", err)
			}
		}
	})
}

func TestKeysOfHostsDiffer(t *testing.T) {
	a, b := Master{Secret: [32]byte{1}, ID: 7}, Master{Secret: [32]byte{2}, ID: 8}
	if a.HostKey("host1").Secret == a.HostKey("host2").Secret {
		t.Error("two hosts have one key")
	}
	if a.HostKey("host1").Secret == b.HostKey("host1").Secret {
		t.Error("two masters make one key")
	}
	keys := HostKeys([]Master{{ID: 3}, a, b, {}}, "host1")
	if len(keys) != 2 || keys[0] != b.HostKey("host1") || keys[1] != a.HostKey("host1") {
		t.Errorf("keys %+v: of ids that share two bits the later one counts", keys)
	}
}

func TestStripUndoesInsert(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.IntRange(0, 10).Draw(t, "words")
		segment := make([]byte, fixed, 200)
		segment[12] = byte(5+words) << 4
		segment = append(segment, rapid.SliceOfN(rapid.Byte(), 4*words, 4*words).Draw(t, "options")...)
		segment = append(segment, rapid.SliceOf(rapid.Byte()).Draw(t, "data")...)
		option := Encode(testKey, drawSegment(t), drawContent(t))
		with, err := Insert(segment, option)
		if words > 6 {
			if err == nil {
				t.Fatalf("inserted behind %d bytes of options", 4*words)
			}
			return
		}
		got, found := Find(with)
		if err != nil || !found || got != option || !bytes.Equal(Strip(with), segment) {
			t.Fatalf("%v, found %v", err, found)
		}
	})
}

// Keys of a master are known for a whole life before they make an option, and are believed for one after.
func TestMastersRotate(t *testing.T) {
	now, drawn := time.Unix(1_700_000_000, 0), byte(0)
	draw := func() [32]byte { drawn++; return [32]byte{drawn} }
	masters := NextMasters(nil, now, time.Hour, draw)
	if len(masters) != 2 || masters[0].ID != 1 || masters[1].ID != 2 || Makes(masters) != 1 || masters[0].Secret == masters[1].Secret {
		t.Fatalf("%v", masters)
	}
	if next := NextMasters(masters, now.Add(time.Hour-time.Second), time.Hour, draw); next != nil {
		t.Errorf("too early: %v", next)
	}
	next := NextMasters(masters, now.Add(time.Hour), time.Hour, draw)
	if len(next) != Masters || next[0] != masters[0] || next[1] != masters[1] || Makes(next) != 2 {
		t.Errorf("%v follow %v", next, masters)
	}
	next = NextMasters(next, now.Add(2*time.Hour), time.Hour, draw)
	if len(next) != Masters || next[0].ID != 2 || Makes(next) != 3 {
		t.Errorf("%v are the third", next)
	}
	if Makes(nil) != 0 || Makes(masters[:1]) != 1 {
		t.Error("of none and of one")
	}
	if len(HostKeys(next, "host1")) != Masters {
		t.Error("ids in a row share no two bits")
	}
}
