// Package manager is the control plane: it admits what users write, computes tables, and streams
// them to muxes and hosts.
//
//	ApplyVIPs ─▶ authz.Permit ─▶ admission.VIPs, tables ─▶ store.Update (one transaction)
//	ReportMux, ReportHost ─▶ status, health ──────▶ store
//	                                                 │ newest State
//	         controllers: health ─▶ tables ◀─────────┤
//	                      counts ─▶ tables ◀─────────┤
//	           package publish ─▶ nodes' streams ◀───┘
//
// Package resource serves what users read and write, trustservice who may do what, snatalloc ports; the controllers keep
// the desired state while this manager leads. Errors of the API are package apierr, who may call what is authz, the audit
// log audit, events of resources events; package apiserver serves the API. What is left here is the wiring.
//
// Invariants:
//   - nothing lives only here: State is the store's, and what a stream has sent is lost with it;
//   - a stream reads the newest view and computes its own delta: a slow node skips, nothing queues;
//   - what hosts counted and since when muxes run a move is forgotten by a restart: moves last longer then;
//   - muxes get a view only after the connected hosts have what it needs of them, or a second passed;
//   - tables change only in the store, with a new generation; a restart changes none.
package manager
