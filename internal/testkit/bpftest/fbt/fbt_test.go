package fbt

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
)

func load(t *testing.T) *Twin {
	t.Helper()
	twin, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = twin.Close() })
	return twin
}

func drawEnd(t *rapid.T, name string, v4 bool) netip.AddrPort {
	return netip.AddrPortFrom(drawAddress(t, name, v4), rapid.Uint16Min(1).Draw(t, name+" port"))
}

func drawAddress(t *rapid.T, name string, v4 bool) netip.Addr {
	b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name)
	if v4 {
		return netip.AddrFrom4([4]byte(b))
	}
	b[0] = 0x20
	return netip.AddrFrom16([16]byte(b))
}

func drawContent(t *rapid.T) fbt.Content {
	c := fbt.Content{VNI: rapid.Uint32Range(0, 1<<24-1).Draw(t, "vni"), Via: rapid.Bool().Draw(t, "via")}
	if rapid.Bool().Draw(t, "numbered") {
		c.Number = rapid.Uint32().Draw(t, "number")
	} else {
		c.Host = drawAddress(t, "host", true)
	}
	return c
}

// drawOptions draws options of every length and order, with padding: MSS, timestamps, SACK, TFO, MD5, FBTs of the
// client's own, and any bytes at all.
func drawOptions(t *rapid.T) []byte {
	kinds := [][]byte{
		{1},
		{2, 4, 5, 0xb4},
		{3, 3, 7},
		{4, 2},
		{8, 10, 1, 2, 3, 4, 5, 6, 7, 8},
		{34, 2},
		{34, 10, 1, 2, 3, 4, 5, 6, 7, 8},
		append([]byte{19, 18}, make([]byte, 16)...), append([]byte{253, 16, 0x57, 0x52, 0, 0, 1, 1}, make([]byte, 8)...),
		{0},
	}
	var options []byte
	for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(kinds)-1), 0, 12).Draw(t, "options") {
		if len(options)+len(kinds[i]) <= 40 {
			options = append(options, kinds[i]...)
		}
	}
	if rapid.Float64().Draw(t, "noise") > 0.9 {
		options = rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes")
	}
	for len(options)%4 != 0 { // EOL, and what follows it
		options = append(options, 0)
	}
	return options
}

// drawFrame draws a segment with these options.
func drawFrame(t *rapid.T, client, vip netip.AddrPort, seq uint32, options []byte) (frame []byte, p pkt.Packet) {
	p = pkt.TCP(client.String(), vip.String(), pkt.Flags(rapid.Byte().Draw(t, "flags")),
		pkt.Payload(rapid.SliceOfN(rapid.Byte(), 0, 400).Draw(t, "payload")), pkt.TOS(rapid.Byte().Draw(t, "tos")))
	p.Seq = seq
	p.Options = slices.Repeat([]layers.TCPOption{{OptionType: layers.TCPOptionKindNop, OptionLength: 1}}, len(options))
	frame = p.Frame()
	copy(frame[p.L4()+20:], options)
	fixChecksum(frame, p.L4())
	return frame, p
}

// fixChecksum computes the TCP checksum of a frame whose IP header has no options.
func fixChecksum(frame []byte, l4 int) {
	segment := frame[l4:]
	segment[16], segment[17] = 0, 0
	addresses := frame[l4-8 : l4]
	if l4 == 54 {
		addresses = frame[l4-32 : l4]
	}
	sum := uint32(len(segment)) + 6
	for _, b := range [][]byte{addresses, segment} {
		for i, v := range b {
			sum += uint32(v) << (8 * (1 - i&1))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	segment[16], segment[17] = byte(^sum>>8), byte(^sum)
}

func TestTheTwinsAgree(t *testing.T) {
	twin := load(t)
	rapid.Check(t, func(t *rapid.T) {
		v4 := rapid.Bool().Draw(t, "v4")
		key := fbt.Key{ID: rapid.Uint32Min(1).Draw(t, "id")}
		copy(key.Secret[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "secret"))
		s := fbt.Segment{
			Outer:  drawAddress(t, "outer", rapid.Bool().Draw(t, "outer v4")),
			Client: drawEnd(t, "client", v4), VIP: drawEnd(t, "vip", v4), Seq: rapid.Uint32().Draw(t, "seq"),
		}
		c := drawContent(t)
		got, err := twin.Make(key, s, c)
		if err != nil {
			t.Fatal(err)
		}
		if want := fbt.Encode(key, s, c); got != want {
			t.Fatalf("option %x, in Go %x", got, want)
		}
	})
}

// Strip against what Go inserted: every byte, and both checksums.
func TestStripUndoesInsert(t *testing.T) {
	twin := load(t)
	rapid.Check(t, func(t *rapid.T) {
		v4 := rapid.Bool().Draw(t, "v4")
		frame, p := drawFrame(t, drawEnd(t, "client", v4), drawEnd(t, "vip", v4), rapid.Uint32().Draw(t, "seq"), drawOptions(t))
		s := fbt.Segment{Outer: netip.MustParseAddr("10.1.0.5"), Client: drawEnd(t, "client", v4), VIP: drawEnd(t, "vip", v4)}
		with, err := fbt.Insert(frame[p.L4():], fbt.Encode(fbt.Key{Secret: [16]byte{7}, ID: 1}, s, drawContent(t)))
		if err != nil {
			t.Skip("no room for the option")
		}
		copy(frame, make([]byte, 6)) // to the MAC of a test run's interface
		got, err := twin.Strip(relength(frame[:p.L4()], with))
		if err != nil {
			t.Fatal(err)
		}
		copy(got, frame[:6])
		if !bytes.Equal(got, frame) {
			t.Fatalf("stripped\n%x\nit was\n%x", got, frame)
		}
	})
}

// relength is a frame of the headers and another segment, with the lengths and checksums that follow.
func relength(headers, segment []byte) []byte {
	frame := append(slices.Clone(headers), segment...)
	length := len(frame) - 14
	if frame[14]>>4 == 4 {
		frame[16], frame[17] = byte(length>>8), byte(length)
		frame[24], frame[25] = 0, 0
		sum := uint32(0)
		for i := 14; i < 34; i += 2 {
			sum += uint32(frame[i])<<8 | uint32(frame[i+1])
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		frame[24], frame[25] = byte(^sum>>8), byte(^sum)
	} else {
		length -= 40
		frame[18], frame[19] = byte(length>>8), byte(length)
	}
	fixChecksum(frame, len(headers))
	return frame
}

// Only the first option counts: a client's own, further back, is left alone.
func TestStripFindsTheFirstOptionAlone(t *testing.T) {
	twin := load(t)
	rapid.Check(t, func(t *rapid.T) {
		v4 := rapid.Bool().Draw(t, "v4")
		frame, p := drawFrame(t, drawEnd(t, "client", v4), drawEnd(t, "vip", v4), 1, drawOptions(t))
		_, want := fbt.Find(frame[p.L4():])
		copy(frame, make([]byte, 6))
		got, err := twin.Strip(frame)
		if err != nil {
			t.Fatal(err)
		}
		if (got != nil) != want {
			t.Fatalf("stripped: %v, in Go found: %v", got != nil, want)
		}
	})
}
