// Package steer decides where a packet is served that a switch brought to a host of its VIP: the switch decides where it
// arrives, the host where it is served. It is the rule that the agent's program has in C (bpf/agent/steer_choose.h), as a pure
// function, and the proof by simulation that connections outlive every change between switches and muxes.
package steer
