// Package explain runs packets through the agent's programs without sending, counting or remembering them: a mux's packet
// as it comes in by the uplink, and the answer of a workload that gets it.
package explain
