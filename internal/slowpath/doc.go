// Package slowpath is the slow path of a mux in user space: it forwards the packets that need to wait, to be copied or to
// be fragmented, which XDP can't do.
//
//	program ──punts──▶ Read ─┬─ early fragment ──▶ held until its first fragment came ─┐
//	   ▲                     ├─ too big ─────────▶ cut into fragments ─────────────────┤
//	   │                     └─ ICMP error ──────▶ a copy for each backend ──▶ Send    │
//	   └──────────────────────────── Inject ◀──────────────────────────────────────────┘
//
// Invariants:
//   - Only early fragments are kept, at most MaxHeld and MaxHeldBytes of them, for HoldTime.
//   - Injected frames pass the same program, so only one place chooses backends.
//   - A packet that can't be forwarded is dropped, as by a router.
package slowpath
