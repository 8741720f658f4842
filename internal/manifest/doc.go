// Package manifest reads and writes the files in which users describe VIPs.
//
// A file holds any number of YAML documents, or JSON, which is YAML too: an object or a list of
// them. A document is of one kind:
//
//	apiVersion: weir/v1          the kind VIP: docs/reference/manifest.md
//	kind: VIP
//	metadata: {name: shop}
//	spec: {address: 203.0.113.10, endpoints: [...]}
//
//	{"VIP": "1.2.3.4",           Figure 6 of Ananta (SIGCOMM 2013)
//	 "Endpoint": [...], "SNAT": [...]}
//
// Reading is strict: what is not understood is refused. It collects all that is wrong with a file,
// each with the line, the field, the reason and the source, so that a user mends it in one go.
// Errors that are found later, by a manager, find their lines through Resource.Locate.
//
// Invariant: what Encode writes, Parse reads back as the same VIP.
//
// Pure: no I/O, no clock, no state.
package manifest
