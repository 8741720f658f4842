package mux

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/pkt"
)

// FuzzProgram feeds any bytes to the program: what it passes is unchanged to the byte, what it
// sends is the exact IP packet in a right outer header, and every packet counts once.
func FuzzProgram(f *testing.F) {
	for _, group := range [][]packetCase{forwardCases(), passCases(), dropCases()} {
		for _, c := range group {
			frame := c.packet.Frame()
			if c.damage != nil {
				frame = c.damage(frame)
			}
			f.Add(frame)
		}
	}
	d := newFilled(f, world()...)
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 3000 {
			t.Skip("the kernel's test run takes no such frame")
		}
		before := verdicts(t, d)
		action, out := run(t, d, bytes.Clone(frame))
		total, reply := uint64(0), false
		for name, n := range difference(before, verdicts(t, d)) {
			total += n
			reply = reply || strings.HasPrefix(name, "reply_") // the mux's own answer, of which aside_test.go judges
		}
		if total != 1 {
			t.Errorf("%d verdicts were counted", total)
		}
		switch action {
		case xdpPass, xdpDrop:
			if !bytes.Equal(frame, out) {
				t.Errorf("action %d changed the frame:\n got %x\nwant %x", action, out, frame)
			}
		case xdpTX:
			if !reply {
				checkEncapsulation(t, frame, out)
			}
		default:
			t.Errorf("action %d", action)
		}
	})
}

// checkEncapsulation wants frame's bytes from the IP header on behind a right outer header.
func checkEncapsulation(t *testing.T, frame, out []byte) {
	t.Helper()
	growth := len(out) - len(frame)
	if growth != 20 && growth != 40 {
		t.Fatalf("the frame grew by %d bytes", growth)
	}
	l3 := 14
	for frame[l3-2] != 0x08 && frame[l3-2] != 0x86 || frame[l3-1] != 0x00 && frame[l3-1] != 0xdd {
		l3 += 4 // over a VLAN tag
	}
	if !bytes.Equal(frame[l3:], out[l3+growth:]) {
		t.Errorf("inner packet was changed:\n got %x\nwant %x", out[l3+growth:], frame[l3:])
	}
	outer := out[l3 : l3+growth]
	inner := length(frame[l3:])
	if got := length(outer); got != inner+growth {
		t.Errorf("outer length is %d, want %d", got, inner+growth)
	}
	if growth == 20 && checksum(outer) != 0xffff {
		t.Errorf("outer checksum is wrong: %x", outer)
	}
}

// length is what the IP header says.
func length(ip []byte) int {
	if ip[0]>>4 == 4 {
		return int(ip[2])<<8 | int(ip[3])
	}
	return 40 + int(ip[4])<<8 + int(ip[5])
}

func checksum(header []byte) uint32 {
	sum := uint32(0)
	for i := 0; i < len(header); i += 2 {
		sum += uint32(header[i])<<8 | uint32(header[i+1])
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return sum
}

// The seeds that were found by fuzzing stand in testdata; this is what they and any packet of
// ours must never do: change what a later packet gets.
func TestFuzzedPacketLeavesTheProgramWorking(t *testing.T) {
	d := newFilled(t, world()...)
	for n := range 200 {
		run(t, d, bytes.Repeat([]byte{byte(n)}, 14+n))
	}
	wantChosen(t, d, pkt.TCP(client4, vip4, pkt.SYN), tunnel4)
	if got := len(resolveTables(t, d)); got != len(world()) {
		t.Errorf("%d endpoints, want %d", got, len(world()))
	}
}
