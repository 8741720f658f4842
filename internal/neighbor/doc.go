// Package neighbor decides which mux answers ARP and NDP for a VIP, and for how long: a lease.
//
//	mux ──request, sent at s──▶ manager ◀── who can answer, read at a ── store
//	    ◀──── lease: a + Lease - now ──
//	answers until s + lease ≤ a + Lease
//
// The owner of a VIP is a function of the muxes that the store has as able to answer. Any manager grants leases by what
// it has read of them, and needs no leader. A mux that becomes owner waits until no other one can have a lease.
//
// Invariants:
//   - of a VIP no two muxes have a lease at a time, whatever managers, muxes and the network between them do: only the
//     rates of their clocks are trusted, to Margin in Lease;
//   - an owner that has a lease goes on without a wait while it stays owner.
package neighbor
