// Package bpf is what bpf2go generates of bpf/switch/switch.bpf.c.
package bpf

// UseObject has LoadSwitch read another object than the one that is built in: test/mutate has some with a fault.
func UseObject(object []byte) { _SwitchBytes = object }
