// Package publish computes what nodes with a stream at this manager have to get, and follows what they acknowledge.
//
//	store ─▶ State ─▶ Hub: what differs, for which node ─▶ HostFeed ─▶ stream of a host    at once
//	                   │                                                 │ AckHost
//	                   ├─ gate: hosts have acknowledged it, ◀────────────┘
//	                   ▼  or had HostsGrace; of other managers' hosts by SetPeerProgress
//	               release ──▶ MuxFeed ─▶ stream of a mux
//	                   │            │ AckMux                  excludeSilent: muxes that do not acknowledge
//	                   ▼            ▼
//	        unacknowledged ──▶ progress: all muxes have acknowledged ─▶ Await; hosts get source NAT
//	                             │  ▲
//	              StreamProgress ▼  │ SetPeerProgress
//	                        other managers
//
// Invariants:
//   - a feed keeps the keys of rows that are due, and reads the rows when they are sent: it does not grow with time, and
//     a slow node gets only the last of several changes;
//   - muxes get a State after the hosts that it adds something to have acknowledged it, or had HostsGrace;
//   - hosts get a State's source NAT after all muxes that serve have acknowledged it;
//   - a feed that opens begins with a snapshot.
//
// It knows nothing of calls, users and tenants: the manager decides who may have a stream, and writes to it.
package publish
