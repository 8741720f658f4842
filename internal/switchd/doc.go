// Package switchd is the daemon of a switch that serves as a mux (Duet, section 3.1): it programs what the manager tells,
// and announces it to the switch's own router.
//
//	manager ──SyncSwitch──▶ entries ──▶ driver ──▶ tables
//	   ▲                     │ │  ▲                  │
//	   │                     │ │  └── read back ─────┘
//	   │                     │ └──▶ speaker ──▶ the switch's router ──▶ fabric
//	   └──ReportSwitch── reports
//
// Invariants:
//   - What is announced is a lease: the router keeps the routes of a daemon that is gone no longer than graceful restart
//     takes, and a daemon that hears no manager withdraws by itself.
//   - Tables outlive the process. They attract nothing: routes do.
//   - Nothing is imported from the router.
package switchd
