package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/trust"
)

// Error is a manager's refusal of a call.
type Error struct {
	Code    connect.Code
	Message string
	Fields  []*model.FieldError // what is wrong with the request, if that was the reason
	cause   error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the field errors, for model.FieldErrors, and the *connect.Error.
func (e *Error) Unwrap() []error {
	all := make([]error, 0, len(e.Fields)+1)
	for _, f := range e.Fields {
		all = append(all, f)
	}
	return append(all, e.cause)
}

// UnreachableError says that no manager answered, and what to do.
type UnreachableError struct {
	reasons []string // "at 10.0.0.1:7400: connection refused"
}

func (e *UnreachableError) Error() string {
	return "reach the manager " + strings.Join(e.reasons, ", ") +
		": check that weir-manager runs and listens there, or name another with --manager"
}

func (e *UnreachableError) add(address string, err error) {
	reason := err.Error()
	var timeout net.Error
	var syscall *os.SyscallError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		reason = "unknown host"
	case errors.As(err, &syscall):
		reason = syscall.Err.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		reason = "no answer"
	case errors.Is(err, io.EOF):
		reason = "the connection broke"
	}
	e.reasons = append(e.reasons, "at "+address+": "+reason)
}

// translate makes what a client sees of err, which a call of package connect returned.
func translate(err error) error {
	if err == nil {
		return nil
	}
	var unreachable *UnreachableError
	if errors.As(err, &unreachable) {
		return unreachable
	}
	var wrong *trust.WrongCAError
	var server *trust.ServerError
	var scheme *SchemeError
	switch {
	case errors.As(err, &scheme):
		return scheme
	case errors.As(err, &wrong):
		return wrong
	case errors.As(err, &server):
		return server
	}
	var refused *connect.Error
	if !errors.As(err, &refused) {
		return err
	}
	if broke(refused) {
		return &UnreachableError{reasons: []string{"again: the connection broke: " + refused.Message()}}
	}
	e := &Error{Code: refused.Code(), Message: refused.Message(), cause: refused}
	for _, detail := range refused.Details() {
		value, err := detail.Value()
		if err != nil {
			continue // of a newer manager: the message says it too
		}
		if bad, ok := value.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				e.Fields = append(e.Fields, &model.FieldError{Field: v.GetField(), Reason: v.GetDescription()})
			}
		}
	}
	return e
}

// broke says whether it was the connection that failed a call, not the manager or the caller's context.
// One that breaks while the request is written is Canceled to package connect, though nobody cancelled.
func broke(err *connect.Error) bool {
	if connect.IsWireError(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var transport *url.Error
	if _, answered := retryIn(err); answered {
		return false
	}
	return err.Code() == connect.CodeUnavailable || errors.As(err, &transport)
}

// NewError makes the error that a manager answers with: err under code, its field errors as details.
func NewError(code connect.Code, err error) *connect.Error {
	refused := connect.NewError(code, err)
	bad := &errdetails.BadRequest{}
	for _, f := range model.FieldErrors(err) {
		bad.FieldViolations = append(bad.FieldViolations,
			&errdetails.BadRequest_FieldViolation{Field: f.Field, Description: f.Reason})
	}
	if len(bad.FieldViolations) == 0 {
		return refused
	}
	if detail, err := connect.NewErrorDetail(bad); err == nil {
		refused.AddDetail(detail)
	}
	return refused
}
