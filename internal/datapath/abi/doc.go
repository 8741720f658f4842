// Package abi reads and writes what the data planes share of bpf/abi: addresses, ports, counters and
// the names of verdicts; and it waits for packets in flight. Each data plane's package generates its own
// types; what is here works on the forms that they have in common.
package abi
