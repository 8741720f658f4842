// Package ctl is the command line of an operator: it applies manifests and shows what the manager
// knows. Nouns look (get, describe, status, explain), verbs change (apply, delete).
//
//	session ── what every command shares: the manager's address, the output's format
//	apply ──▶ manifests (files, folders, standard input) ──▶ one ApplyVIPs ──▶ wait
//	get, describe, status, explain ──▶ one or two calls ──▶ a table for people, or JSON or YAML
//
// Results go to standard output, everything else to standard error. An error is one line that names
// the thing, the reason and what to do; what is wrong with manifests follows line by line.
//
// The program ends with 0 when all went well, 1 when something failed or was refused, 2 when it was
// called wrongly, 3 when apply or delete changed the desired state but not every mux ran it in time.
package ctl
