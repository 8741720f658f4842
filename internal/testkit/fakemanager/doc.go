// Package fakemanager plays the manager to a mux or an agent: it says what a test has it say, and notes what it is told. For tests
// only.
//
//	test ── Set, Publish ──▶ Part ── SyncMux, SyncHost ──▶ weir-mux, weir-agent
//	     ◀── Streams ──────        ◀── requests ─────────
package fakemanager
