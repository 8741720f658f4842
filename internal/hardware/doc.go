// Package hardware is a switch as Weir sees it (Duet, section 3.1): three tables and what they can hold. A route to a
// single address has an ECMP group as its next hop, and the members of the group encapsulate.
//
//	routes (hosts)        ECMP                tunnels
//	203.0.113.10/32 ────▶ ┌──────────┐        ┌──────────────────┐
//	                      │ member 0 ├───────▶│ to 10.1.1.5      │
//	                      │ member 1 ├───┐    ├──────────────────┤
//	                      │ member 2 ├───┴───▶│ to 10.1.2.5      │
//	                      └──────────┘        └──────────────────┘
//
// A Driver programs one kind of switch. Package drivertest has the cases that each passes.
package hardware
