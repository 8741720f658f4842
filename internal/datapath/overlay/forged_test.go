package overlay

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
)

var forgeries = flag.Int("forgeries", 30000, "packets of TestForgedOptionsAreNotTaken")

// SYNs with forged FBTs from a stranger, from a host that is no mux, and with the mux's address but without the key: none
// is taken, and no table grows.
func TestForgedOptionsAreNotTaken(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, f)
			rng := rand.New(rand.NewPCG(7, 7))
			stranger := "10.7.7.7"
			if !netip.MustParseAddr(f.tunnel).Is4() {
				stranger = "fd07::7"
			}
			var frames [][]byte
			for _, from := range []string{stranger, f.host, f.mux, f.mux} {
				r.mux = from
				wrong := fbt.Key{Secret: [16]byte{4, 5, 6}, ID: r.key.ID}
				frames = append(frames, r.fromMux(r.segment(pkt.SYN, 1000, 0), 7, wrong))
			}
			right := r.fromMux(r.segment(pkt.SYN, 1000, 0), 7, r.key) // but not of other numbers and ports
			frames[3] = bytes.Clone(right)
			tcp := r.l4(right)
			for n := range *forgeries / len(families()) {
				frame := frames[n%len(frames)]
				binary.BigEndian.PutUint16(frame[tcp:], uint16(rng.Uint32()))
				binary.BigEndian.PutUint32(frame[tcp+4:], rng.Uint32())
				if n%len(frames) != 3 || n%8 == 3 {
					binary.BigEndian.PutUint64(frame[tcp+28:], rng.Uint64()) // host and MAC
				} else {
					copy(frame[tcp+28:], right[tcp+28:tcp+36])
				}
				got, err := r.objects.FromUnderlay.Run(&ebpf.RunOptions{Data: frame})
				if err != nil || got != drop {
					t.Fatalf("forged SYN %d: action %d, %v\n%x", n, got, err, frame)
				}
			}
			if s, err := r.session(); err == nil {
				t.Errorf("a session was made: %+v", s)
			}
			r.counts(0, 0, 0)
			verdicts, err := r.Verdicts()
			if err != nil {
				t.Fatal(err)
			}
			for _, verdict := range []string{"drop_fbt_forged", "drop_not_a_vtep", "drop_syn_past_mux"} {
				if verdicts[verdict].Packets == 0 {
					t.Errorf("none counted as %s: %v", verdict, verdicts)
				}
			}
		})
	}
}

// l4 is where the inner segment begins.
func (r *rig) l4(frame []byte) int {
	at := 14 + 20 + 30 + 20
	if frame[12] == 0x86 {
		at += 20
	}
	if !netip.MustParseAddrPort(r.vip).Addr().Is4() {
		at += 20
	}
	return at
}
