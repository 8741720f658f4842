// Package daemon is what Weir's long-running programs share around their work: version, logging, the
// end on a signal, and, of those with a data plane, the flags that name the node and the pins, status
// and unload.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/telemetry"
)

// Version is set by the linker.
var Version = "devel"

// Logging holds the flags that every daemon takes.
type Logging struct {
	level  string
	format string
}

// Flags adds --log-level and --log-format to cmd.
func (l *Logging) Flags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&l.level, "log-level", "info", "debug, info, warn or error")
	cmd.PersistentFlags().StringVar(&l.format, "log-format", "text", "text or json")
}

// Logger makes the logger that the flags ask for; it writes to standard error.
func (l *Logging) Logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		return nil, fmt.Errorf("read --log-level: must be debug, info, warn or error, is %q", l.level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch l.format {
	case "text":
		return telemetry.Traced(slog.New(slog.NewTextHandler(os.Stderr, options))), nil
	case "json":
		return telemetry.Traced(slog.New(slog.NewJSONHandler(os.Stderr, options))), nil
	}
	return nil, fmt.Errorf("read --log-format: must be text or json, is %q", l.format)
}

// Run executes the command until it returns or SIGINT or SIGTERM cancels its context, and
// returns the program's exit code: that of the error if it has one, else 1. An error is told in one
// line.
func Run(cmd *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stopping)()
	cmd.Version = Version
	cmd.SilenceErrors = true
	cmd.SilenceUsage = true
	cmd.AddCommand(manualCommand(cmd))
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
		var coded interface{ ExitCode() int }
		if errors.As(err, &coded) {
			return coded.ExitCode()
		}
		return 1
	}
	return 0
}
