// Package hoststate is what oracles remember of bypassed connections on hosts (NGLB, section IV-B): sessions on the server's
// host, flows on the client's. For tests only.
package hoststate
