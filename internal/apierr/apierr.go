package apierr

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// ErrNoLeader is the error of a write while no manager is elected.
var ErrNoLeader = errors.New("no manager leads just now: try again")

// Code is the name of the Connect code of an error.
func Code(err error) string {
	var refused *rpc.Error
	if errors.As(err, &refused) {
		return refused.Code.String()
	}
	return connect.CodeOf(err).String()
}

// bounded is err with as many field errors as one answer tells.
func bounded(err error) error {
	if len(model.FieldErrors(err)) <= model.MaxFieldErrors+1 {
		return err
	}
	var list model.FieldErrorList
	list.Add(err)
	return list.Err()
}

// ToConnect maps an error of a call to one with a Connect code, nil to nil. Field errors are invalid arguments; what
// passes by itself tells when to try again.
func ToConnect(err error) error {
	var refused *connect.Error
	var overloaded *store.OverloadedError
	var full *etcd.NoSpaceError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refused
	case len(model.FieldErrors(err)) > 0:
		return rpc.NewError(connect.CodeInvalidArgument, bounded(err))
	case errors.Is(err, election.ErrNotLeader): // nothing was written
		return rpc.RetryError(ErrNoLeader)
	case errors.As(err, &overloaded):
		return rpc.RetryAfter(connect.CodeResourceExhausted, err, overloaded.After)
	case errors.As(err, &full): // another manager may lead soon
		return rpc.RetryAfter(connect.CodeResourceExhausted, err, time.Second)
	case errors.As(err, new(*store.UnknownFormError)):
		return connect.NewError(connect.CodeFailedPrecondition, err)
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, err)
	}
	return connect.NewError(connect.CodeUnavailable, err)
}
