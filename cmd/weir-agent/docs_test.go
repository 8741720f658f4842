package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var fence = regexp.MustCompile("(?s)```\n(.*?)```")

// The commands of the runbooks are commands of this program.
func TestRunbookCommandsParse(t *testing.T) {
	for _, page := range []string{"host.md", "networks.md"} {
		t.Run(page, func(t *testing.T) { checkRunbook(t, "../../docs/operations/"+page) })
	}
}

func checkRunbook(t *testing.T, page string) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			words := strings.Fields(line)
			if len(words) == 0 || words[0] != "weir-agent" {
				continue
			}
			found++
			cmd, args, err := command().Find(words[1:])
			if err == nil {
				err = cmd.ParseFlags(args)
			}
			if err == nil {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: %v", strings.TrimSpace(line), err)
			}
		}
	}
	if found == 0 {
		t.Error("the runbook names no command")
	}
	for _, name := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(string(text), -1) {
		cmd := command()
		if cmd.Flags().Lookup(name[1]) == nil && cmd.PersistentFlags().Lookup(name[1]) == nil {
			t.Errorf("the runbook names --%s, which is no flag", name[1])
		}
	}
}
