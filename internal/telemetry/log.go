package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// Traced makes a logger add the trace and the span of the context to its lines, if there are any, under
// the keys that OpenTelemetry gives them.
func Traced(log *slog.Logger) *slog.Logger { return slog.New(traced{log.Handler()}) }

type traced struct{ slog.Handler }

// Handle is for slog.
func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs is for slog.
func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

// WithGroup is for slog.
func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }
