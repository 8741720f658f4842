package rpc

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// retryDelay is what a caller is asked to wait for while no manager leads.
	retryDelay = 200 * time.Millisecond
	// retryTime bounds how long a call that has no deadline of its own is tried again.
	retryTime = 15 * time.Second
	// maxRetryDelay is longer than any call is tried again.
	maxRetryDelay = time.Hour
)

// RetryError makes the error of a call that was not carried out and may be made again, whatever it is.
func RetryError(err error) *connect.Error {
	return RetryAfter(connect.CodeUnavailable, err, retryDelay)
}

// RetryAfter makes the error, under code, of a call that was not carried out and may be made again after a
// delay.
func RetryAfter(code connect.Code, err error, delay time.Duration) *connect.Error {
	refused := connect.NewError(code, err)
	if detail, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}); err == nil {
		refused.AddDetail(detail)
	}
	return refused
}

// retryIn says after what delay a call may be made again that failed with err, and whether it may. The other side may say
// any delay, a negative one too.
func retryIn(err error) (time.Duration, bool) {
	var refused *connect.Error
	if !errors.As(err, &refused) {
		return 0, false
	}
	for _, detail := range refused.Details() {
		value, err := detail.Value()
		if err != nil {
			continue
		}
		if info, ok := value.(*errdetails.RetryInfo); ok {
			return min(max(info.GetRetryDelay().AsDuration(), 0), maxRetryDelay), true
		}
	}
	return 0, false
}

// repeats bounds how often a call is made again whose outcome nobody knows.
const repeats = 2

// retryUnary makes calls again that a manager did not carry out and asks to, within the caller's deadline. A call that
// may be made twice is also made again when the manager that took it, or the leader behind it, is lost.
func retryUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		until, bounded := ctx.Deadline()
		if !bounded {
			until = time.Now().Add(retryTime)
		}
		left := 0
		if request.Spec().IdempotencyLevel != connect.IdempotencyUnknown {
			left = repeats
		}
		for {
			response, err := next(ctx, request)
			delay, again := retryIn(err)
			if _, _, ports := PortsRefused(err); ports {
				return response, err
			}
			if !again && left > 0 && lost(err) {
				delay, again, left = retryDelay, true, left-1
			}
			if !again {
				return response, err
			}
			delay += rand.N(delay + 1)
			if time.Until(until) < delay {
				return response, err
			}
			select {
			case <-time.After(delay):
			case <-ctx.Done():
				return response, err
			}
		}
	}
}

// lost says whether nobody knows what became of a call, because a manager died or froze.
func lost(err error) bool {
	told := translate(err)
	if errors.As(told, new(*UnreachableError)) {
		return !errors.As(err, new(*UnreachableError)) // none was reached: it was not even sent
	}
	var refused *Error
	return errors.As(told, &refused) && refused.Code == connect.CodeUnavailable
}
