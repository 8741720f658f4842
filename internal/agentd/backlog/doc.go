// Package backlog finds backends of a host that take no more connections for a while: because the accept queue of their
// listener is full, or because SYNs to them stay without an answer while others are answered. What it finds is reported to
// the manager, which may have muxes answer SYNs with cookies meanwhile.
//
//	sock_diag, each second ──┐
//	sweeps of both tables ───┴──▶ Watcher ──▶ reports
//
// A backend that answers nothing at all is no finding of unanswered SYNs: it is dead, which its health check tells.
package backlog
