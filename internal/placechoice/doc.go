// Package placechoice decides which switches VIPs of placement auto go to, and which moves may begin. Pure: no I/O, no
// clock. Package placement finds the places; this one says what there is to place, and how much room there is.
//
//	World: fabric, switches, VIPs ── Choose ──▶ Choice: where each VIP is to be, or why with the muxes
//	Choice, where VIPs are ───────── Ready ───▶ moves that may begin now
//
// Each switch that has a VIP holds it whole. VIPs of placement require have their rows first, wherever they are.
//
// Invariants: a VIP that fits where it is stays there, unless all are to be placed anew. A move begins only with room at
// both ends. What a switch needs to change its largest group make-before-break stays free.
package placechoice
