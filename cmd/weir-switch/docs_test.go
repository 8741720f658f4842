package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The commands and flags of the page are this program's.
func TestPageOfSwitchesIsOfThisProgram(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations/switches.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^weir-switch (.*)$`).FindAllStringSubmatch(string(text), -1)
	if len(commands) == 0 {
		t.Error("the page names no command")
	}
	for _, line := range commands {
		cmd, args, err := command().Find(strings.Fields(line[1]))
		if err == nil {
			err = cmd.ParseFlags(args)
		}
		if err == nil {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %v", line[0], err)
		}
	}
	for _, name := range regexp.MustCompile("`--([a-z0-9-]+)`").FindAllStringSubmatch(string(text), -1) {
		if cmd := command(); cmd.Flags().Lookup(name[1]) == nil && cmd.PersistentFlags().Lookup(name[1]) == nil {
			t.Errorf("the page names --%s, which is no flag", name[1])
		}
	}
}
