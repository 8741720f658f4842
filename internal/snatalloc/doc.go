// Package snatalloc is the service that allocates ports of source NAT to workloads: admission, allocation, release,
// audit, and what a restore of the store begins.
//
//	AllocatePorts ─▶ Enter (a place, or the queue) ─▶ Precheck (at a follower) ─▶ leader: limits ─▶ store ─▶ muxes ─▶ answer
//	ReleasePorts  ─▶ ranges rest ─▶ RunQuarantine frees them
//
// Invariants:
//   - a range is one workload's, in quarantine, or free;
//   - ports are answered when every healthy mux runs them, and free when every one runs that they are nobody's;
//   - after a restore none are given until the hosts have told which they have.
//
// Which ranges are free is package desired, how many one gets package snat.
package snatalloc
