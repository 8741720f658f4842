package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "rewrite the reference")

const reference = "../../docs/reference/cli.md"

// The reference is what --help says of every command.
func TestReferenceIsCurrent(t *testing.T) {
	root := command()
	root.InitDefaultHelpFlag()
	var text strings.Builder
	text.WriteString("# Command line\n\n" +
		"What `weir --help` says of every command. A test holds this page and the program together:\n" +
		"`go test ./cmd/weir -update` writes it anew.\n\n" +
		"Every command takes `--manager`: " + root.PersistentFlags().Lookup("manager").Usage + "\n" +
		"(default `" + root.PersistentFlags().Lookup("manager").DefValue + "`).\n")
	write(&text, root)
	if *update {
		if err := os.WriteFile(reference, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Error("docs/reference/cli.md is not what --help says: run go test ./cmd/weir -update")
	}
}

func write(text *strings.Builder, cmd *cobra.Command) {
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	fmt.Fprintf(text, "\n## %s\n\n%s\n", cmd.CommandPath(), long)
	if cmd.Runnable() && cmd.HasParent() {
		fmt.Fprintf(text, "\n```\n%s\n```\n", cmd.UseLine())
	}
	if len(cmd.Aliases) > 0 {
		fmt.Fprintf(text, "\nAlso: `%s`.\n", strings.Join(cmd.Aliases, "`, `"))
	}
	if cmd.Example != "" {
		fmt.Fprintf(text, "\nExamples:\n\n```\n%s\n```\n", cmd.Example)
	}
	if flags := cmd.LocalNonPersistentFlags(); flags.HasAvailableFlags() && cmd.HasParent() {
		fmt.Fprintf(text, "\nFlags:\n\n```\n%s```\n", flags.FlagUsages())
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			write(text, sub)
		}
	}
}
