// Package fakemanager plays the manager to a mux, an agent or a switch: it says what a test has it say, and notes what it
// is told. For tests only.
//
//	test ── Set, Publish ──▶ Part ── SyncMux, SyncHost, SyncSwitch ──▶ weir-mux, weir-agent, weir-switch
//	     ◀── Streams ──────        ◀── requests ─────────
package fakemanager
