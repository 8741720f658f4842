// Package docs runs the commands of the documents: each block fenced as sh, in order, in a lab. It needs
// root and the built programs in WEIR_BIN (or in bin).
//
// A comment on the line before a block says on which node of the lab it runs: <!-- on mux1 -->.
// Without one it runs on this machine. Those of docs/start are for machines under systemd: test/packages plays them.
// Lines that begin with make are CI's to run; the law below
// holds that their targets exist.
package docs

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// root is the repository's, seen from here.
const root = "../.."

// blockTimeout bounds one block of commands.
const blockTimeout = 2 * time.Minute

// block is a fenced block of commands.
type block struct {
	node     string // of the lab; empty: this machine
	commands string
}

var fence = regexp.MustCompile("(?m)(?:^<!-- on ([a-z0-9-]+) -->\n)?^```sh\n((?s:.*?))^```$")

// blocks returns what a document wants to be run, without the lines that are CI's.
func blocks(text string) []block {
	var found []block
	for _, match := range fence.FindAllStringSubmatch(text, -1) {
		var lines []string
		for line := range strings.Lines(match[2]) {
			if !strings.HasPrefix(line, "make ") {
				lines = append(lines, line)
			}
		}
		if len(lines) > 0 {
			found = append(found, block{node: match[1], commands: strings.Join(lines, "")})
		}
	}
	return found
}

func documents(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "ls-files", "*.md").Output()
	if err != nil {
		t.Fatalf("list the documents: %v", err)
	}
	return strings.Fields(string(out))
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestDocumentsRun(t *testing.T) {
	bin := os.Getenv("WEIR_BIN")
	if bin == "" {
		var err error
		if bin, err = filepath.Abs(filepath.Join(root, "bin")); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	var shared lab
	t.Cleanup(shared.down)
	ran := 0
	for _, path := range documents(t) {
		if strings.HasPrefix(path, "docs/start/") {
			continue
		}
		if found := blocks(read(t, path)); len(found) > 0 {
			t.Run(path, func(t *testing.T) { runDocument(t, &shared, found) })
			ran++
		}
	}
	if ran == 0 {
		t.Error("no document has a block to run")
	}
}

// lab is the one that documents find which build none themselves. It serves the shop.
type lab struct{ up bool }

func (l *lab) find(t *testing.T) {
	t.Helper()
	if !l.up {
		sh(t, block{commands: "weir lab up"})
		l.up = true
	}
	sh(t, block{commands: "weir lab exec manager weir apply -f examples/shop.yaml --wait"})
	// Muxes that run it have told the router soon after.
	sh(t, block{node: "router", commands: `for vip in "-4 route show 203.0.113.10" "-6 route show 2001:db8:113::10"; do
	until test "$(ip $vip | grep -c via)" = 2; do sleep 0.2; done
done`})
}

func (l *lab) down() {
	_ = exec.Command("weir", "lab", "down").Run()
	l.up = false
}

func sh(t *testing.T, b block) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), blockTimeout)
	defer cancel()
	argv := []string{"bash", "-euo", "pipefail", "-c", b.commands}
	if b.node != "" {
		argv = append([]string{"weir", "lab", "exec", b.node}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = root
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%s%v", b.commands, out, err)
	}
	t.Logf("%s\n%s", b.commands, bytes.TrimSpace(out))
}

// runDocument runs the blocks in the lab, or, if they build one themselves, in that.
func runDocument(t *testing.T, shared *lab, found []block) {
	builds := slices.ContainsFunc(found, func(b block) bool { return strings.Contains(b.commands, "weir lab up") })
	if builds {
		shared.down()
	}
	t.Cleanup(func() {
		if builds || t.Failed() {
			shared.down()
		}
	})
	if !builds {
		shared.find(t)
	}
	for _, b := range found {
		sh(t, b)
	}
}

var makeTarget = regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z0-9-]*)")

func TestMakeTargetsInDocumentsExist(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, path := range documents(t) {
		for _, match := range makeTarget.FindAllStringSubmatch(read(t, path), -1) {
			if !strings.Contains(makefile, "\n"+match[1]+":") {
				t.Errorf("%s names make %s, which the Makefile does not have", path, match[1])
			}
		}
	}
}
