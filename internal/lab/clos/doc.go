// Package clos wires the switches of a lab as a Clos network of three tiers, each a router with FRR, by eBGP as in RFC 7938, and
// weir-switch. Muxes and hosts are below ToRs; clients and managers on the router above the cores.
//
//	router (AS 65000) ── core-1, core-2 ── agg-1-1 .. agg-2-2 ── tor-1-1 .. tor-2-2 ── mux1.., host1..
//
// Link k, from 1, has 10.9.k.1 and fd00:9:k::1 at the lower switch, .2 and ::2 at the upper one. What a switch sends by itself
// comes from its loopback's address, which stays while links go.
package clos
