// Package model holds the nouns that all of Weir shares: VIPs as a user wrote them, and the
// tables that muxes and hosts run. Layer 0: it imports the standard library only.
//
//	VIP ── Endpoint (protocol, port) ── Backend (address, port, weight, on a host)
//	            │
//	            ├─▶ MuxEndpoint: buckets → slots → where to send      (to every mux)
//	            └─▶ HostBackend: what to rewrite, what to check       (to the backend's host)
//
// The words are those of docs/glossary.md. Addresses are never v4-mapped here: Validate refuses
// them, so that an address has one spelling.
package model
