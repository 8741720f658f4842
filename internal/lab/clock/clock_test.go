package clock

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tellTime has the test's own program tell the time, again and again, to whoever started it.
const tellTime = "WEIR_TEST_TELL_TIME"

func TestMain(m *testing.M) {
	if os.Getenv(tellTime) == "" {
		os.Exit(m.Run())
	}
	begun := time.Now()
	for range time.Tick(time.Millisecond) {
		passed := time.Since(begun).Milliseconds()
		if _, err := os.Stdout.WriteString(strconv.FormatInt(time.Now().Unix(), 10) + " " + strconv.FormatInt(passed, 10) + "\n"); err != nil {
			os.Exit(0)
		}
	}
}

// A step is seen by the program that it is made for, in the time of day alone, and by no other.
func TestStep(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only on amd64")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), tellTime+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	lines := bufio.NewScanner(out)
	ahead := func(wanted time.Duration) {
		t.Helper()
		end := time.Now().Add(30 * time.Second)
		for lines.Scan() {
			day, passed, _ := strings.Cut(lines.Text(), " ")
			seconds, err := strconv.ParseInt(day, 10, 64)
			since, err2 := strconv.ParseInt(passed, 10, 64)
			if err := errors.Join(err, err2); err != nil {
				t.Fatal(err)
			}
			if since < 0 || since > int64(time.Hour/time.Millisecond) {
				t.Fatalf("%d ms passed: the step is in time that passes too", since)
			}
			if off := time.Until(time.Unix(seconds, 0)) - wanted; off > -time.Minute && off < time.Minute {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("the time is %s ahead, want %v", time.Until(time.Unix(seconds, 0)), wanted)
			}
		}
		t.Fatalf("the program ended: %v", lines.Err())
	}
	ahead(0)
	for _, by := range []time.Duration{24 * time.Hour, -72 * time.Hour, 48 * time.Hour} {
		if err := Step(cmd.Process.Pid, by); err != nil {
			t.Fatal(err)
		}
		ahead(map[time.Duration]time.Duration{24 * time.Hour: 24 * time.Hour, -72 * time.Hour: -48 * time.Hour, 48 * time.Hour: 0}[by])
	}
}
