// Package fairshare divides what is scarce by weighted max-min fairness.
package fairshare

import (
	"cmp"
	"slices"
)

// Claim is what a party asks for, and its weight, which is positive.
type Claim[N int | float64] struct{ Weight, Want N }

// Divide gives each claim its part of room by weight. A claim that wants less gets that, and leaves the rest to the
// others. left is what no claim wants.
func Divide[N int | float64](room N, claims []Claim[N]) (each []N, left N) {
	order, weights := make([]int, len(claims)), N(0)
	for i, c := range claims {
		order[i] = i
		weights += c.Weight
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Compare(claims[a].Want*claims[b].Weight, claims[b].Want*claims[a].Weight)
	})
	each, left = make([]N, len(claims)), room
	for _, i := range order {
		each[i] = min(claims[i].Want, left*claims[i].Weight/weights)
		left -= each[i]
		weights -= claims[i].Weight
	}
	return each, left
}
