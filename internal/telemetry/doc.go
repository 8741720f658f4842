// Package telemetry is how Weir's daemons are seen from outside: metrics, health and readiness on a
// listener of their own, traces to an OTLP receiver, and logs that name their trace.
//
//	collectors of the daemon ─▶ Register ─▶ /metrics   counters are read when somebody asks
//	checks of the daemon ─────▶ Ready ────▶ /readyz    what is not ready, in words
//	                                        /healthz   the process answers
//	spans of the daemon ──────▶ Tracer ───▶ OTLP       nothing unless an endpoint is set
//
// Invariants:
//   - a program that is not asked pays nothing: no goroutine, no timer, no allocation for a span;
//   - a receiver or scraper that is slow or away delays nobody: spans are dropped, a scrape is bounded;
//   - what can't be listened on by default is told and done without: observation never stops a daemon;
//   - no label takes its values from packets or clients.
//
// A nil *Telemetry is one that is off.
package telemetry
