package apiserver

import (
	"context"
	"errors"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/audit"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/trust"
)

// admit says whether the caller may make the call with this message, now, and whether the message is within its bounds.
func (s *Server) admit(ctx context.Context, procedure string, message any) error {
	if err := authz.Permit(trust.FromContext(ctx), s.Store.State(), procedure, message); err != nil {
		return err
	}
	if err := s.limited(trust.FromContext(ctx), procedure, message); err != nil {
		return err
	}
	return within(message)
}

// within says which fields of a message are beyond their bounds.
func within(message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return nil
	}
	if err := limits.Check(m); err != nil {
		return apierr.ToConnect(err)
	}
	return nil
}

// guarded permits a unary call, makes it, and notes how it ended.
func (s *Server) guarded(ctx context.Context, procedure string, request any, handle func(context.Context, any) (any, error)) (response any, err error) {
	audit.Begin(ctx, procedure, request)
	if err = s.admit(ctx, procedure, request); err == nil {
		if response, err = handle(ctx, request); err == nil {
			authz.Redact(trust.FromContext(ctx), response)
		}
	}
	audit.End(ctx, err)
	return response, err
}

// guard holds the rules for gRPC and Connect.
type guard struct{ *Server }

// WrapUnary guards a unary call.
func (g guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		var answer connect.AnyResponse
		_, err := g.guarded(ctx, request.Spec().Procedure, request.Any(), func(ctx context.Context, _ any) (any, error) {
			var err error
			if answer, err = next(ctx, request); err != nil {
				return nil, err
			}
			return answer.Any(), nil
		})
		if err != nil {
			return nil, err
		}
		return answer, nil
	}
}

// WrapStreamingClient changes nothing: a manager serves.
func (guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler guards a stream: at its beginning by its request, and for as long as it is open.
func (g guard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		ctx, end := g.open.hold(ctx)
		defer end()
		began, ok := ctx.Value(firstMessageKey{}).(func())
		if !ok {
			began = func() {}
		}
		stream := &guardedStream{StreamingHandlerConn: conn, ctx: ctx, server: g.Server, began: began}
		err := ended(ctx, stream.serve(next))
		audit.End(ctx, err)
		return err
	}
}

// guardedStream guards the messages of a stream. A handler may end while one of its goroutines still waits for a message.
type guardedStream struct {
	connect.StreamingHandlerConn

	ctx    context.Context
	server *Server
	began  func() // is called at the first message: the time to send it is over

	mu       sync.Mutex
	received bool // a message
	over     bool // the handler has ended: the request, what is written of it and its connection are not the stream's any more
}

// serve calls the handler. When it returns, no message is looked at any more.
func (s *guardedStream) serve(handle connect.StreamingHandlerFunc) error {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.over = true
	}()
	return handle(s.ctx, s)
}

// Receive reads a message and holds that the caller may send it.
func (s *guardedStream) Receive(message any) error {
	if err := s.StreamingHandlerConn.Receive(message); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return connect.NewError(connect.CodeCanceled, errors.New("the stream has ended"))
	}
	audit.Begin(s.ctx, s.Spec().Procedure, message)
	if s.received {
		if err := authz.Permit(trust.FromContext(s.ctx), s.server.Store.State(), s.Spec().Procedure, message); err != nil {
			return err
		}
		return within(message)
	}
	s.received = true
	s.began()
	return s.server.admit(s.ctx, s.Spec().Procedure, message)
}
