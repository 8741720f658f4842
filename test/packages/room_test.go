// Package packages installs what make packages writes, as an operator would: by dpkg and rpm, with their scripts,
// in a room of its own. It needs root, Debian, and the built programs in WEIR_BIN (or in bin).
package packages

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"testing"
)

// A room is this machine as it stands, changed for nobody else: an overlay with a shell in it. What is done
// there is gone with it.
type room struct {
	t   *testing.T
	in  io.Writer
	out *bufio.Reader
}

const furnish = `
set -e
floor=$(mktemp -d)
mount --make-rprivate /
mount -t tmpfs tmpfs "$floor"
mkdir "$floor/up" "$floor/work" "$floor/room"
mount -t overlay overlay -o "lowerdir=/,upperdir=$floor/up,workdir=$floor/work" "$floor/room"
mount -t proc proc "$floor/room/proc"
mount --bind /dev "$floor/room/dev"
mount -t tmpfs tmpfs "$floor/room/run"
mount --bind "$1" "$floor/room/mnt"
exec chroot "$floor/room" bash
`

// newRoom makes a room with a folder of this machine at /mnt.
func newRoom(t *testing.T, folder string) *room {
	t.Helper()
	return newShell(t, exec.CommandContext(t.Context(), "unshare", "--mount", "bash", "-c", furnish, "room", folder))
}

// newShell talks to a command that becomes a shell in a room.
func newShell(t *testing.T, cmd *exec.Cmd) *room {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	return &room{t: t, in: in, out: bufio.NewReader(out)}
}

// try runs a command and returns what it printed and its exit status.
func (r *room) try(command string) (printed, status string) {
	r.t.Helper()
	const mark = "=== ended with "
	fmt.Fprintf(r.in, "{ %s\n} </dev/null 2>&1; status=$?; echo; echo '%s'$status\n", command, mark)
	var text strings.Builder
	for {
		line, err := r.out.ReadString('\n')
		if err != nil {
			r.t.Fatalf("%s: the room is gone: %v\n%s%s", command, err, text.String(), line)
		}
		if rest, ok := strings.CutPrefix(line, mark); ok {
			return strings.TrimSpace(text.String()), strings.TrimSpace(rest)
		}
		text.WriteString(line)
	}
}

// run runs a command that must succeed.
func (r *room) run(command string) string {
	r.t.Helper()
	printed, status := r.try(command)
	if status != "0" {
		r.t.Fatalf("%s\n%s\nended with %s", command, printed, status)
	}
	return printed
}

// holds fails the test unless the text has each of the parts.
func holds(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in:\n%s", part, text)
		}
	}
}
