// Package overloadpolicy decides which steps of a VIP's overload policy are in force. It is pure: the caller samples
// muxes and stores the state.
//
//	         pressure for steps[0].after       for steps[1].after             calm, and holdDown is over
//	nothing ────────────────────────────▶ 1 ─────────────────────▶ 1 and 2 ──────────────────────────────▶ nothing
//	   ▲                                                                                                      │
//	   └──────── pressure soon after: the farthest step at once, and twice the holdDown ◀─────────────────────┘
//
// Invariants: a step is taken only after pressure for its whole time, and one at a time unless it was in force
// lately; it lasts its holdDown unless it is removed from the policy; the state of a VIP does not grow.
package overloadpolicy
