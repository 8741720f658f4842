package model

// BacklogCause is how a host knows that a backend takes no more connections for now.
type BacklogCause string

// The causes.
const (
	BacklogAcceptQueue BacklogCause = "accept-queue"    // connections wait to be accepted, and the queue is full
	BacklogUnanswered  BacklogCause = "unanswered-syns" // SYNs stay without an answer while other connections are answered
)

// BacklogCauses are all.
var BacklogCauses = []BacklogCause{BacklogAcceptQueue, BacklogUnanswered}

// BackendSYNs counts the connections of a backend, of the last few seconds.
type BackendSYNs struct {
	Key        HostBackendKey
	Unanswered uint32 // those whose SYN the backend has not answered
	Answers    uint32 // those that it has sent something in
}

// EndpointBacklog is an endpoint whose SYNs muxes are to answer, as a backend's backlog is full.
type EndpointBacklog struct {
	Key      EndpointKey
	Evidence string
}
