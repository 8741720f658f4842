// Package slowpath sends on the packets that the mux's program can't: XDP can neither wait, nor copy,
// nor cut.
//
//	program ──punts──▶ Read ─┬─ early fragment ──▶ held until its first fragment came ─┐
//	   ▲                     ├─ too big ─────────▶ cut into fragments ─────────────────┤
//	   │                     └─ ICMP error ──────▶ a copy for each backend ──▶ Send    │
//	   └──────────────────────────── Inject ◀──────────────────────────────────────────┘
//
// Invariants:
//   - Nothing is kept but early fragments, and of those at most MaxHeld and MaxHeldBytes, for HoldTime.
//   - What is injected passes the same program, so one place alone chooses backends.
//   - A packet that can't be sent on is dropped, as a router would.
package slowpath
