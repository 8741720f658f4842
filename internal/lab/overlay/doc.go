// Package overlay wires the virtual networks of a lab, as their users would have them: on each host a bridge and a VXLAN
// device of the kernel's for each network, and workloads behind ports of the bridge. All networks have the same addresses.
//
//	workload eth0 ── port ┬ br100 ── vx100 ── uplink      the gateway's Ethernet address, which VIPs have, leads to the muxes
//	workload eth0 ── port ┴ br200 ── vx200 ── uplink
//
// Weir's programs, where a host has them, take packets for VIPs at the port; all else goes this way.
package overlay
