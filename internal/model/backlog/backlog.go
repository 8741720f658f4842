// Package backlog names what is known of backends that take no more connections for now.
package backlog

import "github.com/weirlb/weir/internal/model"

// Cause is how a host knows of such a backend.
type Cause string

// The causes.
const (
	AcceptQueue Cause = "accept-queue"    // connections wait to be accepted, and the queue is full
	Unanswered  Cause = "unanswered-syns" // SYNs stay without an answer while other connections are answered
)

// Causes are all.
var Causes = []Cause{AcceptQueue, Unanswered}

// MaxReported is how many backends of a host count.
const MaxReported = 64

// Pressure is what muxes report of a VIP whose SYNs they answer for it: no trigger of an overload policy.
const Pressure model.OverloadCause = "backlog"

// SYNs counts the connections of a backend, of the last few seconds.
type SYNs struct {
	Key        model.HostBackendKey
	Unanswered uint32 // those whose SYN the backend has not answered
	Answers    uint32 // those that it has sent something in
}

// Endpoint is one whose SYNs muxes are to answer, as a backend's backlog is full.
type Endpoint struct {
	Key      model.EndpointKey
	Evidence string
}
