package rpc

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
)

// Whatever delay the other side names, a call waits as long or gives up: it neither panics nor repeats without a pause.
func TestDelaysOfTheOtherSideAreBounded(t *testing.T) {
	for _, delay := range []time.Duration{math.MinInt64, -time.Second, 0, time.Millisecond, retryTime, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			began, calls := time.Now(), 0
			_, err := retryUnary(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
				if calls++; calls == 3 {
					return nil, nil
				}
				return nil, RetryAfter(connect.CodeUnavailable, errors.New("busy"), delay)
			})(t.Context(), connect.NewRequest(&struct{}{}))
			took := time.Since(began)
			if long := delay >= retryTime; long != (err != nil) || long && took != 0 || !long && (took < 2*delay || took > 4*max(delay, 0)) {
				t.Errorf("delay %v: %d calls in %v, then %v", delay, calls, took, err)
			}
		})
	}
}
