// Package turns lets processes of a benchmark measure in short turns, on one CPU and one at a time, as another process asks for it:
//
//	compare ── name of a measurement, on stdin ──▶ benchmark, its programs loaded and warm
//	        ◀─ nanoseconds a packet, on stdout ───
//
// So two versions of a program are measured milliseconds apart, and what slows the machine for longer slows both.
package turns
