// Package progcache keeps loaded eBPF programs between tests: the verifier takes most of a second for the
// programs of a mux, which is longer than most tests run. A test that takes programs from a cache finds
// their tables as loading makes them: empty, and zero. Before they are put back, every table that they
// can reach is cleared; tests of the packages that use a cache compare the tables with new ones.
package progcache
