// Package segment tells the neighbors of an interface, by ARP (RFC 826, RFC 5227) and Neighbor Discovery (RFC 4861), who has
// an address, and hears what they say of it. Requests are answered elsewhere: by the mux's XDP program.
package segment
