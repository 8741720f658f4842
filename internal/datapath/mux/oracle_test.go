package mux

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// Packets of a class: so many at random, and so many of those with damage.
const oraclePackets = 20_000

// Both forget all flows after so many packets: more flows at once would find a set of theirs full.
const oracleReset = 2000

// TestOracle compares the program with the oracle, verdict by verdict and byte by byte.
func TestOracle(t *testing.T) {
	packets := oraclePackets
	if testing.Short() {
		packets = 1000
	}
	rigs := make(chan *rig, 2) // loading the program costs as much as a class
	for range cap(rigs) {
		rigs <- newRig(t, 1)
	}
	t.Run("class", func(t *testing.T) {
		for i, c := range oracleClasses() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				g := <-rigs
				defer func() { rigs <- g }()
				g.runClass(t, c, uint64(i)+1, packets)
			})
		}
	})
}

func (g *rig) runClass(t *testing.T, c oracleClass, seed uint64, packets int) {
	g.setSettings(t, c.settings(testSettings()))
	g.setAlone(t, c.alone)
	g.setSNAT(t, c.snat)
	g.reset(t)
	g.recount(t)
	before := verdicts(t, g.datapath)
	r := rand.New(rand.NewPCG(seed, 1))
	var history [][]byte
	for n := range 2 * packets {
		frame := c.draw(r).frame()
		if n%2 == 1 {
			frame = damage(r, frame)
		}
		if n%oracleReset == oracleReset-1 {
			g.reset(t)
			history = nil
		}
		history = append(history, frame)
		if g.check(t, frame) != "" {
			t.Fatalf("seed %d, packet %d: %s", seed, n, g.minimise(t, history))
		}
	}
	produced := difference(before, g.counted)
	t.Logf("seed %d: %v", seed, produced)
	for _, verdict := range append(c.more, c.verdict) {
		if produced[verdict] == 0 {
			t.Errorf("no packet got the verdict %s", verdict)
		}
	}
}

// damage changes a valid frame: bits, bytes, lengths, order.
func damage(r *rand.Rand, frame []byte) []byte {
	b := bytes.Clone(frame)
	for range 1 + r.IntN(3) {
		head := min(len(b), 110)
		switch r.IntN(8) {
		case 0, 1, 2:
			b[r.IntN(head)] ^= 1 << r.IntN(8)
		case 3, 4:
			b[r.IntN(head)] = byte(r.Uint32())
		case 5:
			at := r.IntN(head)
			b[at] = []byte{0, 1, 4, 5, 6, 8, 0x0f, 0x45, 0x60, 0x7f, 0x80, 0xff}[r.IntN(12)]
		case 6: // the end is missing
			b = b[:max(14, len(b)-r.IntN(len(b)))]
		case 7: // one part is another's copy
			from, to, n := r.IntN(head), r.IntN(head), r.IntN(8)
			copy(b[to:], bytes.Clone(b[from:min(from+n, len(b))]))
		}
	}
	return b
}

// FuzzOracle is TestOracle of any bytes.
func FuzzOracle(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, c := range oracleClasses() {
		for range 4 {
			f.Add(c.draw(r).frame())
		}
	}
	g, handled := newRig(f, 1), 0
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 3000 {
			t.Skip("the kernel's test run takes no such frame")
		}
		if handled++; handled%oracleReset == 0 {
			g.reset(t)
		}
		if difference := g.check(t, frame); difference != "" {
			alone := g.differs(t, [][]byte{frame})
			t.Fatalf("%s\nfrom nothing: %q", difference, alone)
		}
	})
}

func oracleAddress(r *rand.Rand, like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.AddrFrom4([4]byte{198, 51, 100, byte(r.IntN(64))})
	}
	return netip.AddrFrom16([16]byte{0x20, 1, 0x0d, 0xb8, 15: byte(r.IntN(64))})
}
