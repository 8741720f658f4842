package apiserver

import (
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/inflight"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/tokenbucket"
	"github.com/weirlb/weir/internal/trust"
)

// strangers bounds what those that are not known ask for: before a byte of their requests is read, inflated or parsed.
type strangers struct {
	places inflight.Limit
	rates  tokenbucket.Buckets
}

var errStrangers = errors.New("too many requests of callers that are not known: try again")

// askTrust says whether the store may be asked once more whether it knows what a stranger shows.
func (s *strangers) askTrust(from string, now time.Time) bool {
	b := limits.Callers[limits.Unauthenticated]
	return s.rates.Take("trust "+limits.SourceOf(from), b.Rate, b.Burst, 1, now) == 0
}

// enter takes a place of a stranger's request, which leave gives back.
func (s *strangers) enter(from string, now time.Time) (leave func(), err error) {
	b, source := limits.Callers[limits.Unauthenticated], limits.SourceOf(from)
	if wait := s.rates.Take(source, b.Rate, b.Burst, 1, now); wait > 0 {
		return nil, rpc.RetryAfter(connect.CodeResourceExhausted, errStrangers, wait)
	}
	if leave = s.places.Acquire(source, b.All, b.Each); leave == nil {
		return nil, rpc.RetryAfter(connect.CodeResourceExhausted, errStrangers, time.Second)
	}
	return leave, nil
}

// enterRequest takes what a request needs of what its kind of callers has, and returns what gives it back: before its body is
// read.
func (s *Server) enterRequest(r *http.Request, caller trust.Identity, procedure string, size int64) (leave func(), err error) {
	if caller.Anonymous() {
		return s.strangers.enter(r.RemoteAddr, s.Now())
	}
	if streams(r.URL.Path) || s.Identity.Insecure() {
		return func() {}, nil
	}
	kind, who := limits.KindOf(caller), caller.Share()
	b := limits.Callers[kind]
	if kind == limits.User && who != caller.String() {
		b = limits.Callers[limits.Tenant]
	}
	refuse := func(why string) error {
		return rpc.RetryAfter(connect.CodeResourceExhausted, errors.New(why+": try again"), time.Second)
	}
	leaveRequest := s.requests.Acquire(who, 0, b.Each)
	if leaveRequest == nil {
		return nil, refuse(who + " has too many requests under way")
	}
	if !isLarge(r, procedure, size) {
		return leaveRequest, nil
	}
	leaveLarge := s.large.Acquire(who, limits.LargeAll, limits.LargeEach)
	if leaveLarge == nil {
		leaveRequest()
		return nil, refuse("too many large requests are under way")
	}
	return func() { leaveRequest(); leaveLarge() }, nil
}

// isLarge says whether a request of that size, negative where it does not tell it, is, or may become, one of those that
// few are taken of at once.
func isLarge(r *http.Request, procedure string, size int64) bool {
	const uncounted = 1 << 20
	if !limits.Of(procedure).Large() {
		return false
	}
	return size < 0 || size > uncounted || packed(r)
}

// packed says whether the body of a request is compressed.
func packed(r *http.Request) bool {
	for _, header := range []string{"Content-Encoding", "Grpc-Encoding", "Connect-Content-Encoding"} {
		if encoding := r.Header.Get(header); encoding != "" && encoding != "identity" {
			return true
		}
	}
	return false
}
