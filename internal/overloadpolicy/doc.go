// Package overloadpolicy decides which steps of a VIP's overload policy are in force. It is pure: who looks at muxes,
// when, and where the state is kept is its caller's business.
//
//	         pressure for steps[0].after       for steps[1].after             calm, and holdDown is over
//	nothing ────────────────────────────▶ 1 ─────────────────────▶ 1 and 2 ──────────────────────────────▶ nothing
//	   ▲                                                                                                      │
//	   └──────── pressure soon after: the farthest step at once, and twice the holdDown ◀─────────────────────┘
//
// Invariants: a step is taken only after pressure for its whole time, and one at a time unless it was in force
// lately; it lasts its holdDown unless the policy loses it; what is kept of a VIP does not grow.
package overloadpolicy
