// Package xdp is a stand-in for a switch: an XDP program on every port of a router, with the tables of a switch (Duet, section
// 3.1), their limits, and a hash that is nobody's. The sizes of its maps are the limits.
//
//	hosts: VIP ──▶ ecmp: base .. base+size ──▶ tunnels ──▶ IP-in-IP, by the kernel's routes
//
// A group is replaced by writing the new one to free rows and then the host's row, in one step; rows of the group before
// are free again once no packet reads them. Both therefore need room, and a group's rows lie side by side, as in an ASIC.
//
// The program stays with the ports while no driver runs, and a driver that starts takes its tables over. A switch whose
// ports have no such program has rebooted.
package xdp
