// Package netlink asks the kernel about links, addresses, routes and neighbours, and follows their
// changes.
package netlink
