// Package mptcplab puts a lab's connections of Multipath TCP through churn, for tests and benches: muxes, agents and hosts die
// or freeze, backends drain and go, under requests. Behind each scenario it counts which connections and subflows are lost, one
// by one, and has all that are left join from one more address.
//
//	client1  timestamps ──┐              ┌── mux1 .. m
//	client2  none ────────┴── router ────┤
//	                                     └── host1 .. h: w1 behind an interface, w2 native
package mptcplab
