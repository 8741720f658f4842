// Package traffic describes what each VIP receives in a fabric: how much, from where, and to which backends.
//
//	trace (CSV) ──▶ Reader ─┐
//	                        ├──▶ Interval: the demand of each VIP ──▶ Writer ──▶ trace
//	Workload ──▶ Series ────┘
//
// A trace is a text of lines, each with five fields between commas:
//
//	interval,vip,rack,kbit_per_s,backends
//	0,shop,r1,1500,0        clients in rack r1 send 1.5 Mbit/s to the VIP shop
//	0,shop,external,20000,0 clients outside of the fabric send 20 Mbit/s to it
//	0,shop,r2,0,3           three of its backends are in rack r2
//	1,shop,r1,1700,0        the next interval
//
// The first line is the head above. A line that begins with # is a comment, before the head too. Intervals ascend; within one, lines have any order, and a VIP has at most one line
// for a rack. A rate may have decimals. Fields may stand in double quotes, but hold neither quotes nor commas.
//
// Invariants: a Reader holds one interval at a time and is bounded by its Limits, whatever it reads; demands are sorted
// by VIP and their lists by rack, so that the order of lines does not matter; what a Writer writes, a Reader reads back.
//
// Pure: no I/O but the reader and writer that are given, no clock, and randomness by seed alone.
package traffic
