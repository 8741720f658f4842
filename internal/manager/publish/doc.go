// Package publish tells nodes what they are to run, and follows how far they are.
//
//	store ─▶ State ─▶ Hub: what differs, for whom ─▶ HostFeed ─▶ stream of a host      at once
//	                   │                                             │ AckHost
//	                   ├─ gate: hosts have it ◀───────────────────────┘
//	                   ▼       (or had a second; those of other managers: Heard)
//	                released ──▶ MuxFeed ─▶ stream of a mux
//	                   │            │ AckMux                  exclude muxes that do not answer
//	                   ▼            ▼
//	                told ──▶ progress: all muxes have answered ─▶ Await, and hosts hear of source NAT
//	                             │  ▲
//	                        Tell ▼  │ Heard
//	                          other managers
//
// Invariants:
//   - a feed keeps which rows are due, and reads them when they are sent: it does not grow with time, and of a slow node's changes only the last is sent;
//   - muxes are told a State after the hosts that it adds something to, or when these had their time;
//   - hosts are told of a State's source NAT after all muxes that serve have answered it;
//   - a feed that opens begins with a snapshot.
//
// It knows nothing of calls, users and tenants: who may have a stream, and what is written to it, is the manager's to say.
package publish
