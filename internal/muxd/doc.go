// Package muxd is the daemon of a mux: it wires its parts together, and starts, hands over and stops them.
//
//	manager ──SyncMux──▶ forwarding ──Update, SetNextHops──▶ data plane ◀── synflood, fairdrop, task
//	   ▲                   │ ▲    └──VIPs──▶ announce ──▶ speaker ──▶ routers
//	   ├──AcknowledgeMux───┘ └── next hops ◀── kernel
//	   └──ReportMux── reports ◀── counters, peers, warnings, events
//
// Invariants:
//   - A VIP is announced only after its endpoints are in the tables and the next hops to all hosts
//     were resolved or failed; it is withdrawn before its endpoints are removed.
//   - The data plane outlives the process. A process that adopts live tables announces their VIPs at once, with or
//     without a manager, and keeps their next hops until it has resolved them itself.
//   - Only a clean stop ends forwarding, after the routes are withdrawn and traffic has drained.
package muxd
