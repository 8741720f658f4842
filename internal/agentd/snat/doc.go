// Package snat assigns the ports of VIPs to the flows of a host's workloads (source NAT): it queues packets without a port,
// requests ports from the manager, and releases idle ranges.
//
//	data plane ──notice──▶ Ports ──AllocatePorts, ReleasePorts──▶ manager
//	     ▲ rules, flows ────┘  ▲────────── ranges: stream, answers ──┘
//
// Invariants:
//   - a range is released only after it was closed to new flows and without a flow for a whole round;
//   - an update of the stream that is older than the last answer takes no range away;
//   - packets and bytes in a queue, and their time there, are bounded for each workload.
package snat
