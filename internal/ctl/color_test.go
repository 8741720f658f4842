package ctl

import (
	"regexp"
	"strings"
	"testing"
)

var escapes = regexp.MustCompile("\x1b\\[[0-9]*m")

// Colours are of states alone, add nothing that the words do not say, and move no column.
func TestColoursOfStates(t *testing.T) {
	url := serve(t, badNight())
	for _, command := range []string{"status", "get nodes", "get vips"} {
		plain, _, err := run(t, url, strings.Fields(command)...)
		if err != nil {
			t.Fatal(err)
		}
		coloured, _, err := run(t, url, append(strings.Fields(command), "--color", "always")...)
		if err != nil {
			t.Fatal(err)
		}
		if got := escapes.ReplaceAllString(coloured, ""); got != plain {
			t.Errorf("%s: without its escapes it is\n%s\nand not\n%s", command, got, plain)
		}
		never, _, err := run(t, url, append(strings.Fields(command), "--color", "never")...)
		if err != nil || never != plain {
			t.Errorf("%s --color never: %v\n%s", command, err, never)
		}
		if command == "get vips" {
			continue
		}
		for _, want := range []string{"\x1b[32mconnected\x1b[0m", "\x1b[31mdisconnected, last seen 3m12s ago\x1b[0m"} {
			if !strings.Contains(coloured, want) {
				t.Errorf("%s: %q is not in\n%q", command, want, coloured)
			}
		}
	}
	// In JSON colours would be noise for programs.
	if got, _, err := run(t, url, "get", "nodes", "-o", "json", "--color", "always"); err != nil || strings.Contains(got, "\x1b") {
		t.Errorf("%v: %q", err, got)
	}
	if _, _, err := run(t, url, "status", "--color", "frob"); err == nil {
		t.Error("--color frob is taken")
	}
}
