// Package answer is the oracle's part of answers that go by muxes, without state: what servers' hosts make, and muxes send
// on. Written without a look at the programs' code. For tests only.
package answer
