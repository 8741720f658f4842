// Package bpftest holds programs that run single headers of bpf/ for tests, which compare them with their twins in Go:
// package datagram for fragments, fbt for the Fast Bypass TCP option, syncookie for SYN cookies,
// overlay for the table of overlay sessions, relay for what a neighbour sends on.
package bpftest
