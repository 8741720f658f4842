// Package store keeps the state of a cluster in etcd, by the keys of package keyspace. No type of etcd leaves it, or the packages
// below it.
//
//	              Update                      commit (fenced by the epoch)
//	services ──────────────▶ queue ▸ fold ──────────────────────────────────▶ etcd
//	controllers                ▲                                               │
//	                           │ State, Delta, ChangesSince                    │ watch
//	                           └──────────────────────── cache ◀───────────────┘
//
// Invariants:
//   - the desired state (VIPs, pools, prefix lists, tables, ports, nodes) changes only by Update: one transaction, all or nothing,
//     refused and tried again when another manager changed it since it was read;
//   - a State never changes and is of one revision; generations only grow;
//   - Update and the other writes return when State shows them.
package store
