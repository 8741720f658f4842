// Package doctor looks at a machine that is to be, or is, a mux, a host or a manager, and says of each thing that Weir
// needs whether it fits, why not, and what to do next.
//
//	machine.go   kernel, JIT, bpffs, limits, clock
//	interface.go XDP and its owner, sysctls
//	offloads.go  offloads, by what packets need at a host and at a mux
//	route_mtu.go routes to tunnels, and their MTU
//	blackhole.go what the paths carry
//	local_prefix.go addresses by which servers see clients of virtual networks
//	firewall.go  rules that drop
//	control.go   managers: reachable, certificates, clocks
//	path.go      real connections through each mux
//
// A check changes nothing on the machine. One that can't be made is a warning, not a failure: what is not known is not
// wrong. A failure means that packets, or nodes, are lost by it.
package doctor
