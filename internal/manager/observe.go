package manager

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/telemetry"
)

var errUnanswered = errors.New("the node did not answer")

// observer counts calls, and makes the spans of those that users make.
type observer struct {
	meters *meters
	tracer trace.Tracer
}

func (m *Manager) observer() observer { return observer{m.meters, m.observed.Tracer()} }

// done counts a call of a procedure.
func (o observer) done(procedure, code string, began time.Time, stream bool) {
	o.meters.requests.WithLabelValues(procedure, code).Inc()
	if !stream {
		o.meters.took.WithLabelValues(procedure).Observe(time.Since(began).Seconds())
	}
}

// code is "ok", or the name of what went wrong.
func code(err error) string {
	if err == nil {
		return "ok"
	}
	return connect.CodeOf(err).String()
}

// span begins that of a call that came with header, if its procedure is not one of the nodes'.
func (o observer) span(ctx context.Context, procedure string, header http.Header) (context.Context, trace.Span) {
	if strings.HasPrefix(procedure, "/weir.v1.SyncService/") {
		return ctx, trace.SpanFromContext(ctx)
	}
	ctx = telemetry.WithParent(ctx, header.Get("Traceparent"))
	return o.tracer.Start(ctx, strings.TrimPrefix(procedure, "/"), trace.WithSpanKind(trace.SpanKindServer))
}

// sending notes that a node is sent what changed after one generation up to another, and returns the names
// of the spans that last until it has answered. A host hears of what concerns it only, and at once: its
// trace is that of the last generation.
func (m *Manager) sending(node model.Node, after, to model.Generation) []string {
	var parents []string
	if after != 0 && m.observed.Tracing() {
		parents = m.store.State().TracesIn(after, to)
	}
	_, names, ended := m.observed.Follow(context.Background(), "sync", time.Time{}, parents,
		attribute.String("weir.node", node.Name), attribute.String("weir.role", string(node.Role)), attribute.Int64("weir.generation", int64(to)))
	m.acks.sent(node.Name, node.Role, to, ended)
	return names
}

// published tells how long a State that is newer than after waited for the hosts, since when it was there.
func (m *Manager) published(after model.Generation, s *store.State, since time.Time) {
	if !m.observed.Tracing() {
		return
	}
	_, _, ended := m.observed.Follow(context.Background(), "publish", since, s.TracesIn(after, s.Generation))
	ended(nil)
}

func endCall(span trace.Span, code string, err error) {
	span.SetAttributes(attribute.String("rpc.response.status_code", code))
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// WrapUnary is for connect.
func (o observer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		began, procedure := time.Now(), request.Spec().Procedure
		ctx, span := o.span(ctx, procedure, request.Header())
		response, err := next(ctx, request)
		o.done(procedure, code(err), began, false)
		endCall(span, code(err), err)
		return response, err
	}
}

// WrapStreamingClient is for connect; a manager has no such.
func (o observer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is for connect.
func (o observer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		began := time.Now()
		err := next(ctx, conn)
		o.done(conn.Spec().Procedure, code(err), began, true)
		return err
	}
}

// rest observes the calls of REST that next serves, by the pattern of routes that takes them. What is not
// there has none, and counts as such, whatever its path is.
func (o observer) rest(routes *http.ServeMux, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, restRoot) {
			next.ServeHTTP(w, r)
			return
		}
		_, procedure := routes.Handler(r)
		if procedure == restRoot || procedure == "" {
			procedure = "unknown"
		}
		began := time.Now()
		ctx, span := o.span(r.Context(), procedure, r.Header)
		if parent := telemetry.Parent(ctx); parent != "" {
			r.Header.Set("Traceparent", parent) // another manager may have to answer
		}
		status := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(status, r.WithContext(ctx))
		code, failed := restCode(status.status)
		o.done(procedure, code, began, false)
		endCall(span, code, failed)
	})
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader is for net/http.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// restCode is what the gateway made a status of HTTP of.
func restCode(status int) (string, error) {
	if status < http.StatusBadRequest {
		return "ok", nil
	}
	err := errors.New(http.StatusText(status))
	codes := map[int]connect.Code{
		http.StatusBadRequest: connect.CodeInvalidArgument, http.StatusUnauthorized: connect.CodeUnauthenticated,
		http.StatusForbidden: connect.CodePermissionDenied, http.StatusNotFound: connect.CodeNotFound,
		http.StatusConflict: connect.CodeAlreadyExists, http.StatusTooManyRequests: connect.CodeResourceExhausted,
		http.StatusNotImplemented: connect.CodeUnimplemented, http.StatusServiceUnavailable: connect.CodeUnavailable,
		http.StatusGatewayTimeout: connect.CodeDeadlineExceeded, http.StatusMethodNotAllowed: connect.CodeUnimplemented,
	}
	if code, known := codes[status]; known {
		return code.String(), err
	}
	return connect.CodeUnknown.String(), err
}
