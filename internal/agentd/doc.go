// Package agentd is the daemon of a host: it keeps the data plane at what the manager wants, finds the workloads and
// reports. Packages below it check health, assign source NAT's ports, run Fastpath, and evacuate sessions.
//
//	manager ──stream──▶ Agent.apply ──▶ tables ──▶ data plane (rules, muxes, generation)
//	                        │                          ▲
//	                        ▼                          │ DIP → interface
//	                healthcheck ──▶ probes     locate ◀── links, addresses, routes change
//	                        │
//	manager ◀──ReportHost── reports: generation or rejection, health, status
//
// Invariants:
//   - The data plane is changed by nothing but a message of the manager, a change of where a workload
//     lives, and the sweep of idle sessions. When the manager is away, forwarding and checking go on.
//   - After a restart, what is pinned stays until the first snapshot; then only the difference is applied.
//   - A generation is reported as run only when all of it is in the data plane. What was refused is
//     tried again, whole, with the next message and with every report.
package agentd
