// Package muxd is the daemon of a mux: it writes the manager's updates to the data plane, resolves the next hops to the
// hosts, and announces the VIPs.
//
//	manager ──SyncMux──▶ tables ──Apply──▶ data plane ◀──SetNextHops── next hops ◀── kernel
//	   ▲                   │  VIPs                                        │
//	   ├──AcknowledgeMux── acknowledgements: what runs                    │
//	   └──ReportMux─────── reports ◀── counters, peers, warnings ─────────┘
//	                       └─▶ routes ──Announce──▶ speaker ──▶ routers
//
// Invariants:
//   - A VIP is announced only after its endpoints are in the tables and the next hops to all hosts
//     were resolved or failed; it is withdrawn before its endpoints are removed.
//   - The data plane outlives the process. A process that adopts live tables announces their VIPs at once, with or without
//     a manager, and keeps their next hops until it has resolved them itself.
//   - Only a clean stop ends forwarding, after the routes are withdrawn and traffic has drained.
package muxd
