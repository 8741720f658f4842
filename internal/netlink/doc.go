// Package netlink asks the kernel what a daemon must know of the machine's network: interfaces and
// their addresses, and which Ethernet addresses lead to a destination.
//
//	destination ──route──▶ gateway, or the destination itself ──neighbour──▶ MAC ──▶ model.NextHop
//
// NextHops follows both tables by subscription, and reads them whole now and then in case an event
// was lost. The traffic that uses its answers passes the kernel by, so the kernel would let the
// neighbours grow stale: NextHops keeps those resolved that it needs.
//
// Two change something: Discard ends what would go round between mux and router, KeepVXLANSockets has the kernel merge
// packets of VXLAN.
package netlink
