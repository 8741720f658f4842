// Package snatalloc is the service that allocates ports of source NAT to hosts and workloads: allocation, release,
// audit, and what a restore of the store begins.
//
//	AllocatePorts ─▶ limits ─▶ store ─▶ muxes ─▶ response
//	ReleasePorts  ─▶ quarantine ─▶ RunQuarantine frees them
//
// Invariants:
//   - a range is one workload's, in quarantine, or free;
//   - a request is answered when every healthy mux has the ranges; a range is free when every one knows that it is;
//   - after a restore none is allocated until the hosts have reported what they have.
//
// Package snatport chooses free ranges, package snat says how many a workload gets.
package snatalloc
