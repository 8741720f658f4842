// Package bpf is what bpf2go generates of bpf/switch/switch.bpf.c.
package bpf
