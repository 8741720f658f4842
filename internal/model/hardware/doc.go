// Package hardware holds what is valid of VIPs in hardware, and the nouns of their placement. Layer 0, as package model.
//
//	model.VIP.Hardware ── what the VIP's owner asks for
//	Placement ─────────── where the VIP is, and on its way: written by the leader alone
package hardware
