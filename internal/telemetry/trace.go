package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// newProvider sends spans to the endpoint of the options; nil if there is none. What the receiver does
// not take is dropped: nobody waits for it.
func newProvider(ctx context.Context, o *Options, p Process, log *slog.Logger) (*sdktrace.TracerProvider, error) {
	if o.endpoint() == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	exporter, err := newExporter(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("send traces to %s: %w", o.endpoint(), err)
	}
	named, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", p.Program),
		attribute.String("service.namespace", "weir"),
		attribute.String("service.instance.id", p.Name),
		attribute.String("service.version", p.Version),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("read OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	log.Info("traces are sent", "collector", o.endpoint())
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(named)), nil
}

// newExporter speaks the protocol that the standard variables name: grpc, or http/protobuf.
func newExporter(ctx context.Context, o *Options) (*otlptrace.Exporter, error) {
	protocol := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	switch protocol {
	case "", "grpc":
		var options []otlptracegrpc.Option
		if o.Endpoint != "" {
			options = append(options, otlptracegrpc.WithEndpointURL(o.Endpoint))
		}
		return otlptracegrpc.New(ctx, options...)
	case "http/protobuf":
		var options []otlptracehttp.Option
		if o.Endpoint != "" {
			options = append(options, otlptracehttp.WithEndpointURL(strings.TrimSuffix(o.Endpoint, "/")+"/v1/traces"))
		}
		return otlptracehttp.New(ctx, options...)
	}
	return nil, fmt.Errorf("read OTEL_EXPORTER_OTLP_PROTOCOL: must be grpc or http/protobuf, is %q", protocol)
}

// Parent writes the span of ctx as a traceparent of W3C's Trace Context; empty if it is not recorded.
func Parent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// WithParent returns ctx as a part of the trace that parent names, if it names one.
func WithParent(ctx context.Context, parent string) context.Context {
	if parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent})
}

// scope names who makes the spans.
const scope = "github.com/weirlb/weir"

// Span begins a span within that of ctx, and returns what ends it with how it went. Where ctx has none
// that is recorded, it does nothing.
func Span(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, func(error)) {
	within := trace.SpanFromContext(ctx)
	if !within.IsRecording() {
		return ctx, func(error) {}
	}
	ctx, span := within.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithAttributes(attributes...))
	return ctx, func(err error) { end(span, err) }
}

func end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Follow begins a span in each of the traces that parents name, at since if that is not zero. It returns the
// context of the first, the names under which these spans are parents themselves, and what ends them.
func (t *Telemetry) Follow(
	ctx context.Context, name string, since time.Time, parents []string, attributes ...attribute.KeyValue,
) (context.Context, []string, func(error)) {
	if !t.Tracing() || len(parents) == 0 {
		return ctx, nil, func(error) {}
	}
	options := []trace.SpanStartOption{trace.WithAttributes(attributes...)}
	if !since.IsZero() {
		options = append(options, trace.WithTimestamp(since))
	}
	var spans []trace.Span
	var names []string
	first := ctx
	for i, parent := range parents[:min(len(parents), MaxParents)] {
		in, span := t.Tracer().Start(WithParent(ctx, parent), name, options...)
		if i == 0 {
			first = in
		}
		if name := Parent(in); name != "" {
			names = append(names, name)
		}
		spans = append(spans, span)
	}
	return first, names, func(err error) {
		for _, span := range spans {
			end(span, err)
		}
	}
}

// MaxParents bounds the traces that one message or one transaction is part of.
const MaxParents = 16
