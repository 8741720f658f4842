// Package cluster holds the commands about the managers and those that they trust: users, join tokens, certificates,
// the audit log, versions, and backup and restore of the store.
package cluster
