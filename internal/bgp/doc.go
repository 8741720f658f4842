// Package bgp announces the pool's routes to the routers. It embeds GoBGP and hides it: nothing of
// that library leaves the package.
//
//	Announce(set) ──▶ diff ──▶ paths ──▶ every peer, both families over one session
//	                                     │
//	           peer states, BFD, reasons ◀┘
//
// Invariants:
//   - The speaker only speaks: no route of a peer is imported.
//   - Paths are there before peers are added, so the first update after a restart carries the
//     full set before its End-of-RIB, and a helper of graceful restart drops none of them.
//   - BFD starts after a session is up and stops when it is lost; without a session it starts alone (see bfd.go).
//   - Run ends cleanly (routes withdrawn, then Cease) unless HandOver was called before (no
//     NOTIFICATION, so that the peers keep the routes for the successor).
package bgp
