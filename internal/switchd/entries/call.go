package entries

import (
	"context"
	"errors"
	"time"
)

// callTimeout bounds a call of the driver, which has callGrace more to come back.
const (
	callTimeout = 5 * time.Second
	callGrace   = 250 * time.Millisecond
)

// errStuck means that the switch does not answer.
var errStuck = errors.New("the switch does not answer its driver")

// call calls the driver. It returns errStuck when the time is over, even if the call does not return; until it does, others
// return that at once.
func call[T any](ctx context.Context, busy chan struct{}, do func(context.Context) (T, error)) (value T, err error) {
	select {
	case busy <- struct{}{}:
	default:
		return value, errStuck
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	go func() {
		defer cancel()
		value, err := do(bounded)
		<-busy
		done <- result{value, err}
	}()
	late := time.NewTimer(callTimeout + callGrace)
	defer late.Stop()
	select {
	case r := <-done:
		if r.err != nil && bounded.Err() != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
			return value, errStuck
		}
		return r.value, r.err
	case <-late.C:
		return value, errStuck
	}
}
