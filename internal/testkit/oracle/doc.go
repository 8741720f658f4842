// Package oracle says what a mux must do with a frame, and a server's host with one of a virtual network's client: the
// verdict and every byte that leaves it.
//
// It is written from the design and the RFCs, for reading: slices, maps and loops without bounds
// that a verifier would like. It shares nothing with the data plane but the words, so where the two
// differ, one of them is wrong.
//
// A Mux holds the tables that the program was given and the flows that it must remember. It knows
// neither time nor room: a test gives the program a flow table that nothing is evicted from.
package oracle
