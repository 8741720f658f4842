// Package netlab builds a small datacenter of network namespaces on one machine, with a real FRR as
// its router and the real programs of Weir. For tests and the lab only. Package netload puts load on it.
//
//	client1..c   10.0.i.2/24  fd00:0:i::2/64 ──┐
//	                                           │            ┌── mux1..m   10.1.i.2/24  fd00:1:i::2/64
//	manager      10.4.1.2/24  fd00:4:1::2/64 ──┤── router ──┤
//	                                           │  .1, ::1   └── host1..h  10.2.i.2/24  fd00:2:i::2/64
//	                                           │                  └── workloads host<h>-w<n>
//	                                           │                      10.3.h.10+n  fd00:3:h::10+n
//
// Switches, if the plan has any, are sw1..n with 10.7.i.2 and fd00:7:i::2: routers on one arm.
//
// Servers outside, if the plan has any, are outside1..n with 198.18.i.2/24 and 2001:db8:198:i::2/64.
//
// With several managers they are called manager1..r, and manager i has 10.4.i.2.
//
// Each node is a namespace weir-<lab>-<node>; its interface to the router is eth0, and the router's
// interface has the node's name. Odd workloads live behind an interface, in a namespace of their own,
// as containers do; even ones are native: their addresses stand on the host's loopback.
//
// All that a lab leaves on the machine is found again by its name, so that Down clears it up from
// another process and after a crash: namespaces by their prefix, processes by their namespace and by
// the ids in state.json, files and the bpffs with the pins below Root.
package netlab
