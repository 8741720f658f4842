package xdp

import (
	"math/rand/v2"

	"github.com/weirlb/weir/internal/hardware/xdp/bpf"
)

// Bits of the sum that the hash may leave out.
const offsets = 16

// newVendor draws what a vendor chose: a polynomial (reflected, so that its highest bit stands for 1), a seed, and an offset.
func newVendor(random *rand.Rand) bpf.SwitchVendor {
	v := bpf.SwitchVendor{Seed: random.Uint32(), Offset: random.Uint32N(offsets)}
	polynomial := random.Uint32() | 1<<31
	for i := range v.Table[0] {
		sum := uint32(i)
		for range 8 {
			sum = sum>>1 ^ polynomial*(sum&1)
		}
		v.Table[0][i] = sum
	}
	for slice := 1; slice < len(v.Table); slice++ {
		for i := range v.Table[slice] {
			before := v.Table[slice-1][i]
			v.Table[slice][i] = before>>8 ^ v.Table[0][before&0xff]
		}
	}
	return v
}
