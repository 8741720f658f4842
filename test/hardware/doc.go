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
// smaller one cores are Linux routers.
package hardware
