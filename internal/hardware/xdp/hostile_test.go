package xdp

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/pkt"
)

// TestHostileFrames gives the switch frames with bytes changed and cut off: each passes as it is, is dropped, or goes into a
// tunnel with nothing but one hop less.
func TestHostileFrames(t *testing.T) {
	w := newWorld(t)
	random := rand.New(rand.NewPCG(3, 4))
	var frames [][]byte
	for _, vip := range []netip.Addr{vip44, vip46, vip64, vip66} {
		for _, p := range packets(vip) {
			frames = append(frames, p.Frame())
		}
	}
	seen := map[uint32]int{}
	w.do(func() error {
		for range 4000 {
			frame := append([]byte(nil), frames[random.IntN(len(frames))]...)
			for range random.IntN(4) {
				frame[random.IntN(min(len(frame), 60))] = byte(random.Uint32())
			}
			if random.IntN(3) == 0 {
				frame = frame[:14+random.IntN(len(frame)-13)]
			}
			options := &ebpf.RunOptions{
				Data: frame, DataOut: make([]byte, len(frame)+256),
				Context: struct{ Data, DataEnd, DataMeta, Port, Queue, Egress uint32 }{DataEnd: uint32(len(frame)), Port: w.port},
			}
			action, err := w.driver.objects.SwitchPort.Run(options)
			if err != nil {
				return err
			}
			seen[action]++
			w.judge(frame, action, options.DataOut)
		}
		return nil
	})
	if seen[xdpPass] < 100 || seen[xdpRedirect] < 100 {
		t.Errorf("actions were %v: this shows little", seen)
	}
}

func (w *world) judge(in []byte, action uint32, out []byte) {
	w.Helper()
	switch action {
	case xdpDrop:
		return
	case xdpPass:
		if len(out) == len(in) { // else it is left to the kernel, in a tunnel, to find the neighbour
			return
		}
	case xdpRedirect:
	default:
		w.Fatalf("action %d for frame %x", action, in)
	}
	outer := out[14:]
	growth := 40
	if outer[0]>>4 == 4 {
		growth = 20
	}
	if len(out) != len(in)+growth {
		w.Fatalf("frame %x became %x", in, out)
	}
	inner := pkt.IP{TTL: outer[growth+8]}
	hop := 8
	if outer[growth]>>4 == 6 {
		inner.TTL, hop = outer[growth+7], 7
	}
	if inner.TTL != in[14+hop]-1 {
		w.Fatalf("the inner TTL is %d, was %d", inner.TTL, in[14+hop])
	}
	for i, b := range outer[growth:] {
		checksum := hop == 8 && (i == 10 || i == 11)
		if i != hop && !checksum && b != in[14+i] {
			w.Fatalf("byte %d inside was changed: %x became %x", i, in, out)
		}
	}
}
