package bgp

import (
	"context"
	"log/slog"
)

// quietLog is what GoBGP logs to: our log, but all of it at debug. What an operator must know is
// logged by this package in its own words.
type quietLog struct {
	logger *slog.Logger
	level  *slog.LevelVar
}

func quiet(log *slog.Logger) quietLog {
	level := new(slog.LevelVar)
	level.Set(slog.LevelDebug)
	return quietLog{logger: slog.New(demoted{log.Handler()}), level: level}
}

type demoted struct{ slog.Handler }

func (d demoted) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}

func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }
