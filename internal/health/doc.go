// Package health decides from the results of checks whether a backend is healthy, and when the
// next check is due. Pure: no I/O, no clock, no randomness.
//
//	            first success                fall failures in a row
//	unknown ───────────────────▶ healthy ──────────────────────────▶ unhealthy
//	   │                            ▲                                  │  ▲
//	   │                            └──────────────────────────────────┘  │
//	   │                               rise successes in a row            │
//	   └──────────────────────────────────────────────────────────────────┘
//	                         fall failures in a row
//
// A single result that differs from the state starts a streak; one that agrees ends it.
package health
