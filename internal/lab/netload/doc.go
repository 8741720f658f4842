// Package netload puts load on a lab of package netlab and counts what comes of it: requests, held streams, floods,
// single frames, and the packets on a node's link. Clients are processes of their own, on a node.
package netload

import "github.com/weirlb/weir/internal/lab/netns"

// Lab is what load needs of a running lab.
type Lab interface {
	// NS is the namespace of a node.
	NS(node string) (*netns.NS, error)
	// Find is the path of one of Weir's programs.
	Find(program string) string
	// Run runs a program on a node to its end.
	Run(node, program string, args ...string) (output string, err error)
}
