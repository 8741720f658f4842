// Package faults breaks a running control plane in every way that its users will meet, and holds that
// nothing that was promised is lost:
//
//   - no change that was acknowledged is gone, and none of an old leader's is there: histories of API calls
//     are checked for linearizability with porcupine;
//   - when the fault is over, all managers tell the same and all muxes run the same tables, to the last bucket;
//   - no connection broke and no new one failed meanwhile.
//
// Real managers, muxes and agents run in a lab of network namespaces:
//
//	client1  connections that stay ────────────────┐
//	client2  new connections ──────────────────────┤            ┌── mux1 .. mux3
//	client3  writes and reads through any manager ─┤── router ──┤
//	manager1 .. manager3 ──────────────────────────┘            └── host1, host2: two workloads each
//
// A scenario is a few steps drawn from a seed, so that a failure can be run again: -first names the seed, and
// -seeds how many follow.
package faults
