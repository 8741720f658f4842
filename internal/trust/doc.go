// Package trust says who somebody is and may do: the cluster's CA, certificates of nodes and users,
// join tokens, bearer tokens, identities and their roles. It neither stores nor sends anything.
//
//	CA ──signs──▶ certificate: weir://mux/mux1, issue 0
//	join token (id.secret, kept as a hash) ──once──▶ certificate of a role and a name
//	user ──▶ bindings: tenant or * ▸ viewer, operator, admin
//
// Invariants:
//   - a certificate names one identity, in its only URI, and the issue of it, in its serial number: to
//     revoke is to count the issue up;
//   - of tokens only hashes are kept, and they are compared in constant time;
//   - the zero Identity is nobody and may do nothing.
package trust
