// Package oidc signs users of the web page in by an OpenID Connect provider: the authorization code flow with PKCE.
//
//	browser ── /ui/oidc/begin ──▶ manager ── to the provider, with state, nonce, challenge ──▶ browser ──▶ provider
//	browser ── /ui/oidc/callback, code and state ──▶ manager ── code, verifier, client secret ──▶ provider: ID token
//
// Invariants:
//   - the manager keeps nothing of a sign-in under way: state, nonce and verifier are in a cookie that is sealed by a key
//     of this process, so strangers that begin fill nothing, and who ends a sign-in is the browser that began it;
//   - a token counts if the provider's keys sign it, for this client, now, with the nonce of this sign-in;
//   - a person is named by the provider's subject, which persons can't choose; roles follow from groups alone;
//   - what the provider sends is bounded in bytes and time, and goes over TLS, but on loopback.
package oidc
