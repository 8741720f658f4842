// Package publish computes what nodes with a stream at this manager have to get, and follows what they acknowledge.
//
//	store ─▶ State ─▶ Hub: what differs, for which node ─▶ HostFeed ─▶ stream of a host    at once
//	                   │                                                 │ AckHost
//	                   ├─ gate: hosts have acknowledged it, ◀────────────┘
//	                   ▼  or had HostsGrace; of other managers' hosts by SetPeerProgress
//	               release ──▶ MuxFeed ─▶ stream of a mux
//	                   │            │ AckMux                  exclusion: muxes that do not acknowledge
//	                   ▼            ▼
//	        unacknowledged ──▶ progress: all muxes have acknowledged ─▶ Await; hosts get source NAT
//	                             │  ▲
//	              StreamProgress ▼  │ SetPeerProgress
//	                        other managers
//
// Invariants:
//   - keys of rows that are due are kept, and the rows read when they are sent: a slow node gets only the last of
//     several changes, or a snapshot;
//   - what muxes have in common of an update is computed and encoded once a generation;
//   - muxes get a State after the hosts that it adds something to have acknowledged it, or had HostsGrace;
//   - hosts get a State's source NAT after all muxes that serve have acknowledged it;
//   - a feed that opens begins with a snapshot: who may have a stream the manager decides.
package publish
