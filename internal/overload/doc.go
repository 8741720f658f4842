// Package overload detects from samples whether a mux loses packets before its program sees them, and which VIPs cause
// it. It is pure: the caller samples.
//
// Invariants: an overload is detected within a second of its first lost packets when samples come every Interval;
// it ends only after Calm without a loss that counts, so that one that comes and goes is one; memory does not
// grow with what is sampled.
package overload
