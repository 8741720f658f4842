package session

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// usageError says that the program was called wrongly.
type usageError struct {
	cmd   *cobra.Command
	cause error
}

// NewUsageError says that cmd was called wrongly, and where it tells how to call it.
func NewUsageError(cmd *cobra.Command, cause error) error { return &usageError{cmd, cause} }

func (e *usageError) Error() string {
	return fmt.Sprintf("%v: see %s --help", e.cause, e.cmd.CommandPath())
}

func (e *usageError) Unwrap() error { return e.cause }

// ExitCode is what the program ends with.
func (e *usageError) ExitCode() int { return 2 }

// Arguments makes a check of the number of arguments; usage names them: "NAME".
func Arguments(low, high int, usage string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < low:
			return NewUsageError(cmd, fmt.Errorf("%s is missing", usage))
		case len(args) > high && usage == "":
			return NewUsageError(cmd, fmt.Errorf("%q is too much: no arguments are taken", args[high]))
		case len(args) > high:
			return NewUsageError(cmd, fmt.Errorf("%q is too much: the arguments are %s", args[high], usage))
		}
		return nil
	}
}

// Group makes cmd, which has subcommands only, tell which ones there are.
func Group(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var names []string
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
		there := "there are " + strings.Join(names, ", ")
		if len(args) == 0 {
			if !cmd.HasParent() {
				return cmd.Help()
			}
			return NewUsageError(cmd, fmt.Errorf("%s what? %s", cmd.Name(), there))
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			there = fmt.Sprintf("did you mean %s?", strings.Join(near, " or "))
		}
		return NewUsageError(cmd, fmt.Errorf("unknown command %q, %s", args[0], there))
	}
}
