// Package plan answers what software muxes and switches of a datacenter carry: how many muxes are needed, through time
// too, what failures do to links, and the latency that muxes add.
//
// Latency is read from tables of quantiles over load, not from a formula. There are two profiles of them, so that the
// gain of 2014 is not taken for today's: muxes of 2014 were processes that added 0.2 ms without load, and a mux of
// today is an XDP program whose queue is that of its port.
//
// Pure: no I/O, no clock, no randomness.
package plan
