// Package mux loads, fills and reads the mux's data plane: the XDP program of bpf/mux/mux.bpf.c and
// its tables. Its packages convert between model and bpf/abi; no type of the eBPF library leaves them.
//
// The data plane lives in the kernel, pinned below a folder of a bpffs:
//
//	<pin path>/live/{endpoints,buckets,...}   the tables
//	<pin path>/live/{program,slowpath_progs,link}     the program, its slow path, and its attachment
//
// A process that ends leaves it forwarding; the next one adopts it. "live" comes into being by
// one rename, so it is always whole. A lock on the pin path keeps a second process out.
//
// Invariants:
//
//   - A slice of buckets or backends is filled before a row of endpoints names it, and never
//     written while one does, but for the next hops of its backends.
//   - A slice that a row named before is given out again only after every packet that may have
//     read that row is done.
//   - Apply and Replace reserve all the room that they need before they write anything.
package mux
