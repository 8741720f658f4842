// Package switches makes a node of a lab a switch that serves VIPs (Duet): a router of its own, with FRR and weir-switch, on
// one arm of the lab's router.
//
//	router (AS 65000) ──── sw1 (AS 65101) FRR ◀── BGP ── weir-switch ──▶ the kernel's next-hop groups
package switches
