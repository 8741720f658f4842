// Package steering names what a host knows of the VIPs that switches hold: to which host a packet belongs that a switch
// brought, and who may send such packets.
package steering
