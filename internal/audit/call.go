package audit

import (
	"context"

	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// Call is what is known of one request, from its caller to its result.
type Call struct {
	caller    trust.Identity
	procedure string // empty: it did not get as far as a call
	subject   string
	changes   bool
	ended     bool
	code      string // empty: it went well
	reason    string
}

// NewCall is a request of a caller before its procedure is known.
func NewCall(caller trust.Identity) *Call { return &Call{caller: caller} }

// WithCall returns a context that carries a call to Begin and End.
func WithCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

type callKey struct{}

// Begin notes which procedure a request calls, and on what.
func Begin(ctx context.Context, procedure string, message any) {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		c.procedure, c.subject = procedure, subject(procedure, message)
		c.changes = authz.Changes(procedure) && !isDryRun(message)
	}
}

// End notes how the call ended.
func End(ctx context.Context, err error) {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		c.end(err)
	}
}

// By notes that the call is of a caller who was nobody when it began: it has signed in.
func By(ctx context.Context, caller trust.Identity) {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		caller.From = c.caller.From
		c.caller = caller
	}
}

// Elsewhere notes that another manager carries the call out, and records it.
func Elsewhere(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*Call); ok {
		c.changes = false
	}
}

// Refuse notes that a request was refused before it was a call.
func (c *Call) Refuse(path string, err error) {
	c.procedure = shortened(path)
	c.end(err)
}

func (c *Call) end(err error) {
	c.ended = true
	// Who asks for more ports than there are is no stranger.
	if _, _, ports := rpc.PortsRefused(err); err != nil && !ports {
		c.code, c.reason = apierr.Code(err), err.Error()
	}
}

func isDryRun(message any) bool {
	dry, ok := message.(interface{ GetDryRun() bool })
	return ok && dry.GetDryRun()
}
