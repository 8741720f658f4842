// Package overlay runs load-balancer bypass (NGLB, sections IV-B and V) on a host: the programs of bpf/overlay and their
// tables. Of the server's side above all the sessions of virtual networks' clients with servers here, a table that is
// mapped into memory. Of the client's side the ports of networks' workloads, and bypass flows: a cache, whose rows cost
// one packet by the muxes when they are lost.
//
// Programs, tables and links are pinned, so connections go on without the daemon. A restart adopts them: rows keep
// their numbers, for a row's number is the address by which the server knows the client. A table that is to be larger
// is made beside the live one, which takes no new sessions for the moment in which its rows are brought over.
//
// Invariants:
//   - A session is found by hash_key; who draws it anew loses all of them.
//   - What a tenant has of the table is counted by the programs as sessions begin, and by Sweep as it frees them.
//   - Nothing lives in two rows; a row's tag changes with each session that it gets.
package overlay
