// Package overlay writes what a mux knows of virtual networks (NGLB): the address that their hosts send VXLAN to, VIPs in
// networks, the hosts of clients, and the keys of hosts with backends. Tables are set exactly, whoever filled them before.
package overlay
