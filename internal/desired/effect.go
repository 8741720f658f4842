package desired

import (
	"math/bits"

	"github.com/weirlb/weir/internal/model"
)

// Effect is what a change does to an endpoint's table.
type Effect struct {
	Moved   int // buckets that name another backend afterwards, of Total
	Total   int
	Waiting int // buckets that should move too, and wait for the end of earlier moves
	// Draining is how many buckets move away from each slot whose backend lives, and Held how many it
	// had before; of a table of Total buckets.
	Draining, Held map[model.Slot]int
}

// EffectOf compares the table of e before and after a change.
func EffectOf(s *State, vip model.VIP, e model.Endpoint, before, after Table) Effect {
	effect := Effect{
		Total: len(after.MuxBuckets()), Waiting: waitingBuckets(s, vip, e, after), Draining: map[model.Slot]int{}, Held: map[model.Slot]int{},
	}
	if len(before.MuxBuckets()) == 0 || after.Closed {
		return effect
	}
	for i, slot := range after.Buckets {
		was := before.Buckets[i&(len(before.Buckets)-1)]
		effect.Held[was]++
		if was == slot {
			continue
		}
		effect.Moved++
		if !after.down(was) {
			effect.Draining[was]++
		}
	}
	return effect
}

// Sizes of a mux's rows, as bpf/abi has them: of an endpoint and its key, of a bucket, of a backend; and
// how many buckets make a row.
const (
	endpointBytes = 60
	bucketBytes   = 2
	backendBytes  = 24
	rowBuckets    = 32
)

// Bytes is the memory that the table takes in each mux, but for its counters, which have a row for each
// CPU. A table whose buckets name previous ones takes twice as many.
func (t Table) Bytes() uint64 {
	size := uint64(endpointBytes)
	if n := len(t.MuxBuckets()); n > 0 {
		buckets := max(n, rowBuckets) * bucketBytes
		if len(t.Moves) > 0 {
			buckets *= 2
		}
		size += uint64(buckets)
	}
	if n := len(t.Rows); n > 0 {
		size += backendBytes << bits.Len(uint(t.Rows[n-1].Slot))
	}
	return size
}
