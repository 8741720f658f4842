// Package entries keeps a switch at what the manager tells, and says which VIPs routers may be told of.
//
//	Apply ──▶ told ──▶ plan ──▶ Program, Remove ──▶ Read ──▶ held ──▶ Announce
//	           │                                              ▲          ▲
//	           └─ kept in the data directory        audit ────┘   lease ─┘
//
// Invariants:
//   - A VIP is announced only while the manager has said so, its entry was read back as it is to be, that is not long ago, and
//     the manager was heard within the lease. An entry that is being changed is announced as the one before: the driver
//     changes it in one step. One that the switch does not take, or that differs without our doing, is withdrawn; of a TIP
//     only the latter: other switches send to it until the manager has them stop.
//   - An entry is removed only some time after its route is withdrawn.
//   - What is withdrawn does not wait for the driver: Apply announces by itself.
//   - Entries that nobody told of are removed only after the first snapshot of the process.
//   - The driver is called by one goroutine at a time, and each call is bounded.
package entries
