package session

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/testkit/terminal"
)

// read reads what is seen until it ends with some text.
func read(t *testing.T, screen *os.File, until *regexp.Regexp) (seen string) {
	t.Helper()
	part := make([]byte, 4096)
	for !until.MatchString(seen) {
		n, err := screen.Read(part)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += string(part[:n])
	}
	return seen
}

// A call that takes over a second is seen on a terminal until it ends, by one line, whoever else tells something.
func TestACallThatTakesLongIsSeen(t *testing.T) {
	for what, c := range map[string]struct {
		tell string // of another Progress around it
		want string
	}{
		"alone":          {"", "waiting for https://10.0.0.11:7400"},
		"within another": {"mux\x1b[2J1 lags", "mux[2J1 lags"},
		"wide":           {strings.Repeat("x", 100), strings.Repeat("x", 73) + "…"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			screen, tty := terminal.Open(t)
			s := New(nil)
			s.errOut = tty
			around := &Progress{}
			if c.tell != "" {
				around = s.Progress(tty)
				around.Tell("%s", c.tell)
			}
			line := "\r\x1b\\[K" + regexp.QuoteMeta(c.want) + "  [1-9]s"
			call := s.waits("https://10.0.0.11:7400")(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
				if seen := read(t, screen, regexp.MustCompile(line)); !regexp.MustCompile("^" + line + "$").MatchString(seen) {
					t.Errorf("the terminal has %q", seen)
				}
				return nil, nil
			})
			if _, err := call(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			around.Done()
			fmt.Fprint(tty, "end")
			if seen := read(t, screen, regexp.MustCompile("end$")); !strings.HasSuffix(seen, "\r\x1b[Kend") {
				t.Errorf("the line stays: %q", seen)
			}
		})
	}
}

// What is short tells nothing, nor what runs while another program has the terminal.
func TestNoProgressIsTold(t *testing.T) {
	for what, hold := range map[string]bool{"short": false, "held": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			screen, tty := terminal.Open(t)
			s := New(nil)
			s.errOut = tty
			took := 100 * time.Millisecond
			if hold {
				s.HoldProgress()
				took = progressAfter + 2*progressEvery
			}
			_, err := s.waits("m")(func(context.Context, connect.AnyRequest) (connect.AnyResponse, error) {
				time.Sleep(took)
				return nil, nil
			})(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(tty, "end")
			if seen := read(t, screen, regexp.MustCompile("end$")); seen != "end" {
				t.Errorf("the terminal has %q", seen)
			}
		})
	}
}
