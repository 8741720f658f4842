// Package syncookie tells the programs which SYN cookies of muxes are right, and whether the host's own stack makes sockets
// of them.
package syncookie
