// Package endpoint writes the endpoints that packets for VIPs meet: the tables endpoints, buckets and backends, with the
// settings of each and the state of its SYN cookies.
//
// Invariants:
//
//   - A slice of buckets or backends is filled before a row of endpoints names it, and never
//     written while one does, but for the next hops of its backends, and marks of buckets that are taken away.
//   - A slice that a row named before is given out again only after every packet that may have
//     read that row is done.
//   - Update reserves all the room that it needs before it writes anything.
package endpoint
