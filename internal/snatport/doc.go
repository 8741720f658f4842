// Package snatport allocates the ports of VIPs to workloads that leave as them (source NAT), in ranges of
// model.RangePorts. Pure: no I/O, no clock.
//
// Invariants:
//   - a range of a VIP is of one workload;
//   - a released range is allocated to no other workload for QuarantineTime;
//   - ranges that the VIP reserves, or that have a port of one of its endpoints, are allocated to nobody.
package snatport
