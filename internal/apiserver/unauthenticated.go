package apiserver

import (
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/inflight"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/tokenbucket"
)

// unauthenticated bounds what callers without a credential ask for: before a byte of their requests is read, inflated or
// parsed.
type unauthenticated struct {
	places inflight.Limit
	rates  tokenbucket.Buckets
}

var errUnauthenticated = errors.New("too many requests of callers that are not known: try again")

// askTrust says whether the store may be asked once more whether it knows what such a caller shows.
func (u *unauthenticated) askTrust(from string, now time.Time) bool {
	b := limits.Callers[limits.Unauthenticated]
	return u.rates.Take("trust "+limits.SourceOf(from), b.Rate, b.Burst, 1, now) == 0
}

// enter takes a place of such a caller's request, which leave gives back.
func (u *unauthenticated) enter(from string, now time.Time) (leave func(), err error) {
	b, source := limits.Callers[limits.Unauthenticated], limits.SourceOf(from)
	if wait := u.rates.Take(source, b.Rate, b.Burst, 1, now); wait > 0 {
		return nil, rpc.RetryAfter(connect.CodeResourceExhausted, errUnauthenticated, wait)
	}
	if leave = u.places.Acquire(source, b.All, b.Each); leave == nil {
		return nil, rpc.RetryAfter(connect.CodeResourceExhausted, errUnauthenticated, time.Second)
	}
	return leave, nil
}
