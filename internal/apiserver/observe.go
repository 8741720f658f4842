package apiserver

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlb/weir/internal/telemetry"
)

// Metrics count calls.
type Metrics struct {
	requests *prometheus.CounterVec   // by procedure and code
	took     *prometheus.HistogramVec // by procedure, of calls that are no streams
}

// NewMetrics returns Metrics that no registry has yet.
func NewMetrics() *Metrics {
	return &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_manager_api_requests_total", Help: "API calls by procedure, or by method and path of REST, and status code.",
		}, []string{"procedure", "code"}),
		took: telemetry.Seconds("weir_manager_api_request_duration_seconds", "Duration of API calls, without streams.", "procedure"),
	}
}

// Collectors are for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.took}
}

// observer counts calls, and makes the spans of those that users make.
type observer struct {
	*Metrics
	tracer trace.Tracer
}

// done counts a call of a procedure.
func (o observer) done(procedure, code string, began time.Time, stream bool) {
	o.requests.WithLabelValues(procedure, code).Inc()
	if !stream {
		o.took.WithLabelValues(procedure).Observe(time.Since(began).Seconds())
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
