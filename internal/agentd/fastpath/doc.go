// Package fastpath moves connections between VIPs past the muxes, and back: it answers the messages of muxes and of other
// hosts, and ends what its peer does not answer.
//
//	data plane ──control message──▶ Controller ──message──▶ the peer's host
//	     ▲ connections ─────────────────┘
//
// Invariants:
//   - only a message that is sealed, fresh and of the peer's own tunnel changes a connection;
//   - messages, answers to strays and connections that are remembered are bounded in time and number.
package fastpath
