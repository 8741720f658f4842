package mss

import (
	"fmt"
	"testing"
)

// Of IPv4 and IPv6, by MTU, beside the largest outer header of 76 bytes.
func TestFor(t *testing.T) {
	for _, c := range []struct {
		mtu, v4, v6 int
		why         string
	}{
		{mtu: 0, v4: 0, v6: 0, why: "not known"},
		{mtu: 68, v4: 0, v6: 0, why: "no room for any"},
		{mtu: 117, v4: 1, v6: 0, why: "for one byte, and for none"},
		{mtu: 576, v4: 460, v6: 440, why: "below the least nothing is given up"},
		{mtu: 1280, v4: 1156, v6: 1144, why: "IPv4's is lowered, IPv6's is below the least"},
		{mtu: 1400, v4: 1266, v6: 1264},
		{mtu: 1450, v4: 1316, v6: 1314},
		{mtu: 1500, v4: 1370, v6: 1364, why: "48 segments of 1358 and of 1352 fill a buffer"},
		{mtu: 1576, v4: 1460, v6: 1429, why: "45 of 1448 do, 45 of 1428 do not"},
		{mtu: 1600, v4: 1461, v6: 1461},
		{mtu: 9000, v4: 8884, v6: 8864, why: "7"},
		{mtu: 9216, v4: 9100, v6: 9080},
		{mtu: 65535, v4: 65227, v6: 65227, why: "one is as large as a buffer"},
		{mtu: 1 << 20, v4: 65227, v6: 65227, why: "no packet is larger than 64 KiB"},
		{mtu: 1532, v4: 1398, v6: 1396, why: "of two blocks, buffers of 1387 leave one segment and one byte"},
	} {
		if v4, v6 := For(c.mtu-76, false), For(c.mtu-76, true); v4 != c.v4 || v6 != c.v6 {
			t.Errorf("MTU %d: %d and %d, not %d and %d: %s", c.mtu, v4, v6, c.v4, c.v6, c.why)
		}
	}
}

// Whatever there is room for: it fits, and not too much is given up.
func TestForFits(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		headers, least := 40, 536
		if v6 {
			headers, least = 60, 1220
		}
		for room := range 70_000 {
			mss, most := For(room, v6), min(room, 65535)-headers
			switch {
			case most <= 0:
				if mss != 0 {
					t.Fatalf("room %d, IPv6 %v: %d", room, v6, mss)
				}
			case mss > most, mss < most*15/16, mss < min(most, least):
				t.Fatalf("room %d, IPv6 %v: %d, of at most %d", room, v6, mss, most)
			}
		}
	}
}

// The rule against throughput of one connection of iperf3 as it was measured, of kernels whose buffers hold 65343 bytes.
func TestFillsBuffers(t *testing.T) {
	for segment, fast := range map[int]bool{1448: true, 1417: true, 1386: true, 1387: false, 1481: false, 1482: true, 1380: true, 1352: true, 1428: false, 1404: false, 1372: false, 1364: false} {
		t.Run(fmt.Sprint(segment), func(t *testing.T) {
			if got := fillsBuffers(segment); got != fast {
				t.Errorf("fills buffers: %v", got)
			}
		})
	}
}
