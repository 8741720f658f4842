// Package snat writes which workloads leave the host as a VIP, and from which ports; gives ports to flows that wait; and
// sweeps, counts and shares the tables of flows. The programs change flows one at a time: calls from here run these, too.
package snat
