// Package reset sends the resets by which a host or a mux ends a connection of a virtual network at both ends (NGLB, section VI).
package reset
