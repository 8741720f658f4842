// Package lease grants muxes the leases by which they answer ARP and NDP for VIPs: what this manager does of
// internal/neighbor. It reads from the store which muxes can answer, several times a second while there are any, and
// notes there those that renew their leases with it.
//
// Invariants:
//   - a lease ends Lease after a read of the store began that shows its mux as owner;
//   - a manager that does not reach the store grants none.
package lease
