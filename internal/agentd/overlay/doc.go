// Package overlay runs load-balancer bypass (NGLB) on a host, as the manager's stream tells it: ports of virtual networks'
// workloads, VIPs that are attached to networks, backends here that serve them.
//
//	stream ──Note──▶ Controller ──▶ datapath/overlay: loaded while the host has to do with a network
//	backends, interfaces ──Program──▶  ▲
//	                            Run: sweeps, cleaner, VXLAN sockets
//
// Programs and tables are pinned beside the agent's own. A restart adopts them, sessions and flows with them; attachments
// and backends keep their numbers, which sessions have.
//
// Invariants:
//   - nothing is loaded before the manager has told of an attachment, and nothing stays loaded once there is none and the
//     sessions are over;
//   - a number is another attachment's or rule's only after a whole sweep that found no session with it.
package overlay
