// Package bundle writes the archive of weir support-bundle: what somebody who helps needs to see of a cluster, and nothing
// that lets him in.
//
//	bundle.go  the command, and the parts
//	archive.go the archive and its bounds
//	redact.go  takes secrets out
//
// Invariant: everything that goes into the archive passes redact.
package bundle
