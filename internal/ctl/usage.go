package ctl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// What the program ends with when it does not end with 0 or 1.
const (
	exitUsage   = 2
	exitWaiting = 3
)

// usageError says that the program was called wrongly.
type usageError struct {
	cmd   *cobra.Command
	cause error
}

func (e *usageError) Error() string {
	return fmt.Sprintf("%v: see %s --help", e.cause, e.cmd.CommandPath())
}

func (e *usageError) Unwrap() error { return e.cause }

// ExitCode is what the program ends with.
func (e *usageError) ExitCode() int { return exitUsage }

// arguments makes a check of the number of arguments; usage names them: "NAME".
func arguments(low, high int, usage string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < low:
			return &usageError{cmd, fmt.Errorf("%s is missing", usage)}
		case len(args) > high && usage == "":
			return &usageError{cmd, fmt.Errorf("%q is too much: no arguments are taken", args[high])}
		case len(args) > high:
			return &usageError{cmd, fmt.Errorf("%q is too much: the arguments are %s", args[high], usage)}
		}
		return nil
	}
}

// group makes cmd, which has subcommands only, tell which ones there are.
func group(cmd *cobra.Command) {
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
			return &usageError{cmd, fmt.Errorf("%s what? %s", cmd.Name(), there)}
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			there = fmt.Sprintf("did you mean %s?", strings.Join(near, " or "))
		}
		return &usageError{cmd, fmt.Errorf("unknown command %q, %s", args[0], there)}
	}
}
