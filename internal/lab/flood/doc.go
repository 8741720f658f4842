// Package flood sends packets from sources that do not exist, at a rate or as fast as one thread can: a
// bounded attack for tests. It writes whole IP packets to raw sockets, so it needs CAP_NET_RAW, and it belongs
// into a network namespace that leads nowhere but into a lab.
package flood
