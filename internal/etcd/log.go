package etcd

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.uber.org/zap/zapcore"
)

// quiet passes etcd's warnings and errors on to slog, as debug messages: what matters to an operator
// comes back as an error of a call.
type quiet struct {
	log    *slog.Logger
	fields []zapcore.Field
	// end, if not nil, gets the error by which etcd ends: it has no other way to tell it.
	end *atomic.Pointer[string]
}

func (q quiet) Enabled(level zapcore.Level) bool {
	return level >= zapcore.WarnLevel
}

func (q quiet) With(fields []zapcore.Field) zapcore.Core {
	q.fields = append(q.fields[:len(q.fields):len(q.fields)], fields...)
	return q
}

func (q quiet) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if q.Enabled(entry.Level) {
		return checked.AddCore(entry, q)
	}
	return checked
}

func (q quiet) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range append(q.fields[:len(q.fields):len(q.fields)], fields...) {
		f.AddTo(values)
	}
	if reason, ok := values.Fields["error"].(string); ok && entry.Message == "server error" && q.end != nil {
		q.end.Store(&reason)
	}
	if !q.log.Enabled(context.Background(), slog.LevelDebug) {
		return nil
	}
	q.log.Debug("etcd: "+entry.Message, "level", entry.Level.String(), "fields", values.Fields)
	return nil
}

func (q quiet) Sync() error { return nil }
