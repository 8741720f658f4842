// Package uiproxy is the command ui: it opens the web page of the managers in a browser that neither trusts the cluster's
// CA nor has a user's certificate.
//
//	browser ── HTTP, cookie ──▶ weir ui, on loopback alone ── TLS, the user's configuration ──▶ a manager
//
//	command.go  the command: checks the configuration, listens, prints the address
//	gate.go     which requests are let through: those of one browser
//	proxy.go    sends them to a manager, and takes from both sides what is not for the other
//	browser.go  opens a browser
//
// Everybody on the machine can connect to loopback, and every page of the world can have a browser ask it. Invariants:
//   - a request is let through only with a cookie, which was given out once, for the secret in the printed address;
//   - it names this proxy as its host by a name that is random and below localhost. A name of a stranger that leads to
//     loopback (DNS rebinding) is none, and no other server on loopback, at whichever port, is sent the cookie;
//   - both families of loopback are listened on: a browser that resolves the name tries both, and a stranger could have
//     the other;
//   - the secret is in no argument of a program, which everybody on the machine can read.
package uiproxy
