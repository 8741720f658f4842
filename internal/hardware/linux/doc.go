// Package linux makes a switch of a Linux router: a VIP is a route to a resilient group of next hops, each of which puts an
// IPv6 header in front (reduced encapsulation of a single segment, RFC 8986, section 5.2: plain IP-in-IPv6, which agents take).
//
//	203.0.113.10/32 proto 87 ──▶ group 0x57800001 ──▶ hop 0x57000001 encap seg6 mode encap.red segs fd00::5 dev weir-tunnels
//	                                              └─▶ hop 0x57000002 encap seg6 mode encap.red segs fd00::6 dev weir-tunnels
//
// What is ours has our protocol number and an id of our range; nothing else is touched. The kernel replaces a group in one
// step. Next hops hang on an interface of our own, because the kernel removes them with their interface, even when it only
// loses its carrier; its alias names the boot. The outer packet is routed by its own destination.
//
// Our routes have the lowest metric: those that a routing daemon writes, of what other switches announce, stay behind them.
//
// The kernel has one source of such tunnels per namespace (`ip sr tunsrc`): entries with another one are refused. It has
// no IPv4 tunnels of this kind.
package linux
