// Package muxd is the daemon of a mux: it fills the data plane with what the manager streams, finds
// the next hops to the hosts, and announces the VIPs.
//
//	manager ──SyncMux──▶ tables ──Apply──▶ data plane ◀──SetNextHops── next hops ◀── kernel
//	   ▲                   │  VIPs                                        │
//	   ├──AcknowledgeMux── acknowledgements: what runs                    │
//	   └──ReportMux─────── reports ◀── counters, peers, warnings ─────────┘
//	                       └─▶ routes ──Announce──▶ speaker ──▶ routers
//
// Invariants:
//   - A VIP is announced only after its endpoints are in the tables and the next hops to all hosts
//     were tried; it is withdrawn before its endpoints leave the tables.
//   - What the data plane runs outlives this process. A process that finds live tables announces
//     their VIPs at once, whether it reaches a manager or not, and disturbs no next hop before it
//     knows better.
//   - Only a clean stop ends forwarding, after the routes are withdrawn and traffic has drained.
package muxd
