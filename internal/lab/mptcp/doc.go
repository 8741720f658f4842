// Package mptcp has clients of a lab speak Multipath TCP (RFC 8684) to its VIPs, by the kernel's own at both ends. A client
// gets more paths, each a link to the router and an address of its own, and connections are looked at subflow by subflow.
//
//	         ┌── eth0     10.0.i.2  fd00:0:i::2   path 1 ──┐
//	clienti ─┼── path2    10.8.n.2  fd00:8:n::2   path 2 ──┼── router     n = 10 i + p
//	         └── pathp    10.8.n.2  fd00:8:n::2   path p ──┘
//
// Connections begin on path 1, and are joined from the others as soon as these are endpoints of the client's path manager.
package mptcp
