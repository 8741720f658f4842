// Package bucket computes an endpoint's bucket table: which slot each bucket names.
//
// A flow hashes to a bucket, the bucket names a slot, the slot a backend. Every mux holds the same
// table, and a table is derived from the one before it:
//
//	old      1 1 1 2 2 2 3 3        backends 1, 2, 3
//	                 │   ╰┴─ 3 is gone: its buckets are free
//	                 ╰────── 2 holds one more than its share: it gives one up
//	new      1 1 1 2 2 4 4 4        backends 1, 2, 4
//
// Invariants of Assign, each with a property in the tests:
//
//   - balanced: a backend holds the floor or the ceiling of its weight's exact share;
//   - a pinned bucket keeps its slot; a backend to which more than its share is pinned holds that and
//     no more, and the others are balanced in what is left;
//   - minimal: no balanced table differs from the old one in fewer buckets;
//   - deterministic: backends may come in any order;
//   - growing by doubling alone moves nothing: bucket i of the larger table starts as bucket
//     i mod the old size, which is where its flows were.
//
// Pure: no I/O, no clock, no state.
package bucket
