// Package store keeps everything that must survive in etcd: embedded (one member, no socket) or
// external. No type of etcd leaves it.
//
//	/weir/v1/generation      written with every change of the desired state: its revision is the generation
//	/weir/v1/hosts           written with those changes that add to what hosts run
//	/weir/v1/leader          the manager that leads; its creation revision is the epoch
//	/weir/v1/managers/NAME   a replica of the manager, and its member of the embedded etcd
//	/weir/v1/restored        the store is restored, and what was given out after the backup is not given to others yet
//	/weir/v1/hash-key        the pool's secret, made once
//	/weir/v1/vips/NAME       a VIP as its user wrote it, hosts resolved, with its address, when it was written and by whom
//	/weir/v1/pools/NAME      an address pool
//	/weir/v1/prefix-lists/NAME        a prefix list, by the ids of its chunks
//	/weir/v1/prefix-chunks/LIST/ID    a chunk of its prefixes, which never changes; written before what names it
//	/weir/v1/conditions/NAME what the leader noted of a VIP's state, and since when it is so
//	/weir/v1/tables/VIP/...  an endpoint's slots and buckets
//	/weir/v1/nodes/NAME      a registered mux or host
//	/weir/v1/status/NAME     what a node said last
//	/weir/v1/health/HOST     what a host's agent said of its backends
//	/weir/v1/streams/NAME    the node's stream is open; on the lease of the manager that holds it
//	/weir/events/v1/...      what happened, on leases; no part of the State
//	/weir/trust/v1/...       who may do what: the CA, join tokens, principals, users, tenants; see Trust
//	/weir/audit/v1/...       what was changed and what was refused
//
// Invariants:
//   - the desired state (VIPs, pools, prefix lists, tables, nodes) changes only by Update: one transaction, all or nothing,
//     refused and tried again when another manager changed it since it was read;
//   - a State never changes and is of one revision; generations only grow;
//   - Update and the other writes return when State shows them.
//
// What users write (VIPs, pools, tenants) is a message of api/v1 after one byte, its schema: package compile makes the
// model of it. Other values are JSON with a schema number. A newer schema is refused, not guessed at.
package store
