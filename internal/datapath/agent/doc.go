// Package agent owns the host's data plane: the TCX programs of bpf/agent/agent.bpf.c, their tables,
// and their life on the bpffs.
//
// A Datapath is opened by one process at a time. Closing it leaves everything running: the next
// Open adopts the live tables and sessions and replaces the programs in place, so a restart
// disturbs no connection. The live tables are the truth; what Go keeps of them is read back on
// Open.
//
// What the tables hold is written by its facets, the packages below: rules, sessions, source NAT, SYN cookies, Fastpath and
// the interfaces that programs run at. They share one lock. migration replaces tables of another version.
//
// docs/design/agent.md describes the path of a packet, docs/decisions.md the choices behind it.
package agent
