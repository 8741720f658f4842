// Package bpf is the mux's eBPF object for Go: what bpf2go generates of bpf/mux/mux.bpf.c, the maps and programs as they
// are loaded, pinned and opened, their sizes, and the converters between model and bpf/abi. It knows no rules: what rows
// say is up to the packages that write them.
package bpf
