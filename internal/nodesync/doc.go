// Package nodesync is the manager's side of the streams of nodes: it registers muxes and hosts, streams their tables to them,
// and takes what they acknowledge and report. Package publish decides what is due to whom, and when.
//
//	SyncMux, SyncHost ─▶ replica.CatchUp ─▶ register ─▶ publish: feed ─▶ stream
//	AcknowledgeMux ────▶ publish: the generation runs
//	ReportMux, ReportHost ─▶ Reports ─▶ store (what changed at once, the rest every RefreshInterval)
//	                      ├─▶ health, session counts, audit of ports
//	                      └─▶ events, of the reasons that package events/reason lists
//	FollowProgress ◀─▶ the other replicas: how far their nodes are
//	FollowReports ◀─▶ the other replicas: what their nodes report, counters every TellInterval
//
// Invariants:
//   - nothing lives only here: State is the store's, and what a stream has sent is lost with it;
//   - a stream reads the newest view and computes its own delta: a slow node skips, nothing queues;
//   - a node is registered by the leader, with addresses that its join token allows, while it has a credential in force;
//   - free text of a host is never shown to tenants: an event of a host has the text that belongs to its reason.
package nodesync
