// Package join makes a machine a member of a cluster: the command join, and the line for it that weir token create
// prints.
//
//	line.go    the line, and the same as user data of cloud-init
//	config.go  writes keys into a daemon's configuration, and never over others
//	join.go    the command: configuration, certificate, doctor, unit
//
// Invariant: a token is never an argument of a program, which every user of the machine can see. Of muxes, hosts and
// switches it is in a file of root's alone as long as the exchange for a certificate lasts, 30 s at most. A manager
// joins by itself: its token is in a file that only its user may read.
package join
