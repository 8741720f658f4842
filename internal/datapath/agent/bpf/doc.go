// Package bpf is the agent's eBPF object for Go: what bpf2go generates of bpf/agent/agent.bpf.c, and the converters
// between model and bpf/abi. It knows no rules: what rows say is up to the packages that write them.
package bpf

// UseObject has LoadAgent read another object than the one that is built in: test/mutate has some with a fault.
func UseObject(object []byte) { _AgentBytes = object }
