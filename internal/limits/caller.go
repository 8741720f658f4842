package limits

import "time"

// Caller bounds what callers of a kind may have of a manager. What is 0 is not bounded.
type Caller struct {
	Each    int           // requests of one of them under way, streams left out
	All     int           // of all of them
	Rate    float64       // tokens a second that one has; a request takes what its procedure costs
	Burst   int           // tokens that it may save
	Streams float64       // a second that one may open: each costs its tables as a whole
	Opening int           // streams that it may open at once
	Watches int           // of one
	Sending time.Duration // that one may take to send a request
}

// Kind is a kind of caller.
type Kind string

// Kinds of callers.
const (
	Unauthenticated Kind = "stranger" // whoever is not known, by address: an IPv4 address, a /64 of IPv6
	User            Kind = "user"     // of some tenants
	Tenant          Kind = "tenant"   // all users of one tenant together
	Operator        Kind = "operator" // a user of all tenants
	Host            Kind = "host"
	Mux             Kind = "mux"
	Switch          Kind = "switch"
	Manager         Kind = "manager" // of the same cluster
)

// Callers are the bounds by kind of caller.
var Callers = map[Kind]Caller{
	Unauthenticated: {Each: 8, All: 64, Rate: 20, Burst: 100, Sending: 10 * time.Second},
	User:            {Each: 64, Rate: 200, Burst: 2000, Watches: 100, Sending: time.Minute},
	Tenant:          {Each: 128, All: 1024, Rate: 400, Burst: 4000, Watches: 250, Sending: time.Minute},
	Operator:        {Each: 256, All: 1024, Rate: 2000, Burst: 20000, Watches: 250, Sending: time.Minute},
	Host:            {Each: 256, Rate: 200, Burst: 1000, Streams: 1, Opening: 20, Sending: time.Minute},
	Mux:             {Each: 64, Rate: 500, Burst: 2000, Streams: 1, Opening: 20, Sending: time.Minute},
	Switch:          {Each: 16, Rate: 100, Burst: 500, Streams: 1, Opening: 20, Sending: time.Minute},
	Manager:         {Sending: time.Minute},
}

// What all callers have together.
const (
	Watches   = 1000 // open with one manager
	LargeAll  = 8    // requests under way that are Large
	LargeEach = 2    // of one caller, or of one tenant
)

// Connections of those that have not said yet who they are.
const (
	ConnectionsAll      = 256  // that are served
	ConnectionsEach     = 32   // from one address
	ConnectionsWait     = 4096 // that wait to be served
	ConnectionsWaitEach = 1024
	HandshakesAll       = 200 // a second that end without saying who they are
	HandshakesEach      = 50  // from one address
	HandshakesBurst     = 64  // that begin at once: more would have the CPUs, and who is known would wait for them
)

// Streams of HTTP/2, which are requests under way, of one connection. Who shows no certificate with the handshake, a
// browser or a user with a token, opens another connection when it needs more, and that one is counted.
const (
	StreamsCertified = 250
	StreamsOthers    = 16
)

// HandshakeBytes is what a client may send before the TLS handshake is complete: a certificate and its signature need 2 KiB.
const HandshakeBytes = 16 << 10

// Bytes of the headers of a request, by what its connection has shown. A manager that forwards a call writes the caller's
// identity into a header.
const (
	HeadersCertified = 16 << 10
	HeadersOthers    = 4 << 10 // net/http reads 4 KiB more before it refuses, which is most of what a stranger can make it do
)
