// Package fastpath is what muxes and hosts tell each other of connections that leave the muxes (Ananta,
// section 3.2.4): messages that are sealed with a key of the cluster's, and their bytes.
//
//	          redirect             redirect
//	client's ◀───────── mux ─────────────▶ server's
//	 agent                                   agent
//	   │ ─────────────── ready ───────────────▶ │   "I take this connection's packets from you,
//	   │ ◀────────────── ready ──────────────── │    and would send you mine"
//	   │ ◀═════════════ packets ══════════════▶ │
//	   │ ◀────────────── gone ───────────────── │   "I know nothing of this one: ask the muxes"
//
// Invariants:
//   - A message says nothing before it is opened: its MAC covers all of it, and is compared in constant time.
//   - A message is valid for Lifetime, and each one once.
//   - What a message says of a connection holds for that five-tuple between those two tunnels alone.
package fastpath
