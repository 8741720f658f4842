// Package hardware has a switch serve VIPs in place of the muxes, and muxes in its place, under connections that hold on:
// TCP with and without timestamps, and UDP. It needs root, FRR, and the programs in bin.
//
//	client1, client2 ── router ── mux1, mux2 (aggregate)
//	                      ├────── sw1 (FRR, weir-switch: a route to each VIP)
//	                      └────── host1..3, which hand on what arrives at the wrong one
//
// What is no connection comes by the switch as well: fragments, answers to workloads, GRE; a flood drives the VIP to the
// muxes.
//
// In a Clos fabric of ten switches faults are drawn from a seed: -faults 0 has all happen, -seed draws their order. In a
// smaller one cores are Linux routers. In another one what tells switches and hosts fails, and each scenario draws how:
//
//	managers   killed in each phase of a move; frozen through an election
//	agents     frozen for minutes
//	switches   weir-switch frozen for minutes; BGP to a neighbor cut while the link goes on; tables full
//	muxes      all away
//
// With -seeds N all of it happens for minutes, with N seeds from -seed on (make faults); without, a short selection.
package hardware
