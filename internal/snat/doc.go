// Package snat is what is known of ranges of a VIP's ports for source NAT: sets of them, demand, and how many a workload
// may have. Package snatport chooses them.
//
// Ports are given out in ranges of 8, aligned: a mux finds the workload of a packet that comes back by
// (VIP, port / 8), in an array. A range is one workload's for TCP, UDP and ICMP echo alike.
//
//	range    0      1      2            8191
//	ports  | 0-7 | 8-15 | 16-23 | ... | 65528-65535 |
//
// Invariants: a range is in one workload's hands at most; one with a port of the VIP's endpoints, or a
// reserved one, is given to nobody.
package snat
