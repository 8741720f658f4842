// Package desired is the desired state with its indexes, and computes the tables of endpoints from what users wrote and
// what agents say of the backends' health. Pure: no I/O, no clock.
//
//	VIPs, nodes ──▶ admission ──▶ VIPs that fit together, hosts resolved to nodes
//	VIP, health, old table ──▶ ChangedTables ──▶ Table: slots and buckets, kept in the store
//	State ──▶ nodeconfig ──▶ MuxEndpoint (every mux)   HostBackends (each host its own)
//
// A State is made of parts, a file each: a map, or a type of its own that keeps an index with it. A part that finds
// something of VIPs is one of State.indexes, and is cloned by State.Clone.
//
// Invariants:
//   - a backend, known by its address and port, keeps its slot for life;
//   - a freed slot names no other backend for RetireTime, or the endpoint's idle timeout if that is
//     longer, unless no slot is left;
//   - a bucket that moved names the slot it left until the move ends, and stays meanwhile, unless its
//     new backend goes down; a backend that is down is not named;
//   - a table depends on its predecessor: it is stored, never made anew from the VIP alone;
//   - one tunnel address leads to one host, and no VIP's address is a backend's or a node's.
package desired
