// Package placementpolicy is the way of a VIP into a switch and out of it, as the leader notes it in the store. Pure: no
// I/O, no clock.
//
//	in:  preparing ──▶ programming ──▶ announcing ──▶ hardware
//	      hosts are ready   the switch has it   routers are told
//	out: withdrawing ──▶ removing ──▶ leaving ──▶ none
//	      no router is told, for a second   it has it no more   ten minutes
//	     evicted: out, as the switch refused; back to preparing after a while
//
// Each switch of a VIP has a Place of its own: two that hold and announce the same VIP are legal at any time, as hosts
// steer. A Place is next to what is in the store, whoever wrote that: a leader that takes over goes on where the one before
// it was.
package placementpolicy
