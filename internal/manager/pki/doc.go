// Package pki is a manager's part in the cluster's PKI: it founds the CA or obtains a certificate of it, keeps that and the
// first user's in force, and says whom a client's certificate is of. What certificates and tokens are stands in package
// trust, and who was revoked in the store.
package pki
