package session

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
)

// terminal is a terminal and what is seen of it.
func terminal(t *testing.T) (tty, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return tty, screen
}

// A call that takes over a second is seen on a terminal until it ends, by one line, whoever else tells something.
func TestACallThatTakesLongIsSeen(t *testing.T) {
	const gone = "\r\x1b[K"
	for _, c := range []struct {
		what  string
		call  time.Duration
		tell  string // of another Progress around it
		want  string // after the first second
		wants bool
	}{
		{"short", 100 * time.Millisecond, "", "", false},
		{"long", progressAfter + 2*progressEvery, "", gone + "waiting for https://10.0.0.11:7400  1s", true},
		{"within another", progressAfter + 2*progressEvery, "mux\x1b[2J1 lags", gone + "mux[2J1 lags  1s", true},
		{"wide", progressAfter + 2*progressEvery, strings.Repeat("x", 100), gone + strings.Repeat("x", 73) + "…  1s", true},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			tty, screen := terminal(t)
			s := New(nil)
			s.errOut = tty
			around := &Progress{}
			if c.tell != "" {
				around = s.Progress(tty)
				around.Tell("%s", c.tell)
			}
			call := s.waits("https://10.0.0.11:7400")(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
				time.Sleep(c.call)
				return nil, nil
			})
			if _, err := call(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			around.Done()
			fmt.Fprint(tty, "end")
			seen, part := "", make([]byte, 4096)
			for !strings.HasSuffix(seen, "end") {
				n, err := screen.Read(part)
				if err != nil {
					t.Fatal(err)
				}
				seen += string(part[:n])
			}
			switch {
			case !c.wants && seen != "end":
				t.Errorf("the terminal has %q", seen)
			case c.wants && (!strings.HasPrefix(seen, c.want+gone) || !strings.HasSuffix(seen, gone+"end")):
				t.Errorf("the terminal has %q, want %q, and the line gone in the end", seen, c.want)
			}
		})
	}
}
