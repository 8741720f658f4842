// Package fastpath lists and changes the connections of this host's workloads that have left the muxes, and reads what the
// programs hand over about them.
package fastpath
