// Package replica is one manager among the replicas of the control plane: whether it leads, who leads else, whether it is
// partitioned from the store, and whether its view is as new as what a node or a caller has already seen.
//
//	store: epoch ────▶ RunWhileLeading: controllers run in the leader's term alone
//	       leader ───▶ AwaitLeader: writes are forwarded to it (Peers holds the connections)
//	       answers ──▶ RunPartitionCheck ─▶ Partitioned: nodes go to another replica
//	       State ────▶ CatchUp, AwaitShown: nobody is shown less than it has seen
//
// Invariants:
//   - the loops of one term have ended before those of the next begin;
//   - a node is refused by a replica that knows less than the node has seen;
//   - a caller that was told of a write by this replica reads that write from it, or is refused.
package replica
