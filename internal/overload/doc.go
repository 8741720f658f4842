// Package overload tells from samples whether a mux loses packets before its program sees them, and whose
// traffic it is. It is pure: who samples, and when, is its caller's business.
//
// Invariants: an overload is told within a second of its first lost packets when samples come every Interval;
// it ends only after Calm without a loss that counts, so that one that comes and goes is one; memory does not
// grow with what is sampled.
package overload
