// Package nat is full NAT in the mux: connections of virtual networks' clients whose backends see the mux as the client.
// The programs make sessions, rows of a table whose numbers are NAT addresses and ports; this package says by what, maps
// the table, and frees what is over.
package nat
