package manager

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/rpc/bound"
	"github.com/weirlb/weir/internal/store"
)

// minCompressed is the size of an answer from which on packing it pays, in bytes.
const minCompressed = 16 << 10

// handler serves gRPC, gRPC-Web, Connect and REST from the same services.
func (m *Manager) handler() (http.Handler, error) {
	options := connect.WithHandlerOptions(connect.WithConditionalHandlerOptions(bounded), connect.WithCompressMinBytes(minCompressed),
		connect.WithInterceptors(m.observer(), guard{m}))
	mux := http.NewServeMux()
	mux.Handle(weirv1connect.NewWeirServiceHandler(m, options))
	// Nodes and managers are near: packing what they are told costs more than sending it.
	plain := connect.WithCompressMinBytes(math.MaxInt)
	mux.Handle(weirv1connect.NewSyncServiceHandler(m, options, plain))
	mux.Handle(weirv1connect.NewClusterServiceHandler(cluster{Manager: m}, options, plain))
	mux.Handle(weirv1connect.NewTrustServiceHandler(trustService{m}, options))
	if err := m.handleREST(mux); err != nil {
		return nil, err
	}
	mux.HandleFunc("GET /healthz", m.healthz)
	return m.authenticate(m.observer().rest(mux, m.forward(mux)), procedureOf(mux)), nil
}

// bounded holds the requests of a procedure to its bounds. What strangers may call inflates nothing.
func bounded(spec connect.Spec) []connect.HandlerOption {
	b := bound.Of(spec.Procedure)
	options := []connect.HandlerOption{connect.WithReadMaxBytes(b.Bytes), rpc.WithCodecs(b.Messages)}
	if rules[spec.Procedure].scope == asNobody {
		options = append(options, connect.WithCompression("gzip", nil, nil))
	}
	return options
}

// healthz says whether the store answers, as of the last look: what anybody may ask costs the store nothing.
func (m *Manager) healthz(w http.ResponseWriter, _ *http.Request) {
	if err := m.apart.answer(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Write([]byte("ok\n")) //nolint:errcheck // the client is gone: nobody is left to tell
}

// refusal makes the answer to a call of err: what a user can mend is told as such.
func refusal(err error) error {
	var refused *connect.Error
	var overloaded *store.OverloadedError
	var full *store.FullError
	switch {
	case errors.As(err, &refused):
		return refused
	case len(model.FieldErrors(err)) > 0:
		return rpc.NewError(connect.CodeInvalidArgument, err)
	case errors.Is(err, store.ErrNotLeader): // nothing was written
		return rpc.RetryError(errNoLeader)
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
