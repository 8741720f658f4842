// Package rate makes rates of counters that only grow, and keeps those of the last minutes.
//
//	reports of a node ─▶ Growth between two of them ─▶ Sample of a moment, of all muxes of a manager
//	samples of all managers ─▶ Merge ─▶ Ring: the last 15 minutes
//
// Invariants:
//   - a counter that went back, as with new tables, has no rate until it was reported again;
//   - a Sample has at most MaxEndpoints endpoints: what the others had is in Other;
//   - a Sample that a Ring has is not written again.
package rate

import "time"

// Count is the value of a counter: packets and bytes so far.
type Count struct{ Packets, Bytes uint64 }

// Rate is the growth of a counter in a second.
type Rate struct{ Packets, Bits float64 }

// Add is the sum of two rates.
func (r Rate) Add(other Rate) Rate { return Rate{r.Packets + other.Packets, r.Bits + other.Bits} }

// Since is the rate of a counter over a time, which is more than 0; false: it went back, and has none.
func (c Count) Since(before Count, over time.Duration) (r Rate, ok bool) {
	if c.Packets < before.Packets || c.Bytes < before.Bytes {
		return r, false
	}
	return Rate{
		Packets: float64(c.Packets-before.Packets) / over.Seconds(),
		Bits:    8 * float64(c.Bytes-before.Bytes) / over.Seconds(),
	}, true
}

// Growth is the rate of each counter between two reports. One that is new began at 0.
func Growth[K comparable](from, to map[K]Count, over time.Duration) map[K]Rate {
	rates := make(map[K]Rate, len(to))
	for key, c := range to {
		if r, ok := c.Since(from[key], over); ok {
			rates[key] = r
		}
	}
	return rates
}
