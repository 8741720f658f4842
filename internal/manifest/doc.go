// Package manifest reads and writes the files in which users describe VIPs and what belongs to them.
//
// A file holds any number of YAML documents, or JSON, which is YAML too: an object or a list of
// them. A document is a resource of api/v1, of one kind:
//
//	apiVersion: weir/v1          the kind VIP: docs/reference/manifest.md
//	kind: VIP
//	metadata: {name: shop}
//	spec: {address: 203.0.113.10, endpoints: [...]}
//
//	{"VIP": "1.2.3.4",           Figure 6 of Ananta (SIGCOMM 2013)
//	 "Endpoint": [...], "SNAT": [...]}
//
// Fields have the names of the message's JSON form, in metadata or in spec. Four values are written
// otherwise than in that form: a duration as 1m30s, the port 0 of an endpoint as all, a 64-bit number
// as a number, and an empty list of snat.reserved or snat.except as [] or as [none].
//
// Reading is strict: what is not understood is refused. All that is wrong with a file is collected,
// each with the line, the field, the reason and the source, so that a user mends it in one go.
// Defaults and validation are those of package compile, for manifests and calls of the API alike: their
// errors, and those that a manager finds later, find their lines through Resource.Locate.
//
// Invariant: what Encode writes, Parse reads back as the same message.
//
// Pure: no I/O, no clock, no state.
package manifest
