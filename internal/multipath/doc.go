// Package multipath decides what hosts do with further subflows of Multipath TCP (RFC 8684): which host has the connection
// whose token a SYN with MP_JOIN names. It is the rule that the agent's program has in C (bpf/agent/multipath.h), as pure
// functions, and the proof by simulation that such a SYN reaches the connection's host or nobody.
package multipath
