// Package authz decides which caller may make which call, and what the caller sees of the answer.
//
// rules.go is the table: the role that each procedure takes, and where. tenant.go decides calls about the resources of
// tenants, view.go what a caller sees. Decisions are functions of the caller's identity, the request and the State: they
// wait for nothing and change nothing but the answer that Redact gets. Who the caller is was decided before
// (package pki); a decision that a write depends on is made again in its transaction.
package authz
