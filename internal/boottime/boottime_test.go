package boottime

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Times have no monotonic reading, by which their differences would leave out what the machine slept.
func TestNowIsByTheClockOfTheBoot(t *testing.T) {
	var before, after unix.Timespec
	read := func(to *unix.Timespec) {
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, to); err != nil {
			t.Fatal(err)
		}
	}
	read(&before)
	now := Now()
	read(&after)
	if strings.Contains(now.String(), "m=") {
		t.Errorf("%s has a monotonic reading", now)
	}
	if at := now.Sub(time.Unix(0, 0)); at < time.Duration(before.Nano()) || at > time.Duration(after.Nano()) {
		t.Errorf("it is %s, between %d and %d ns", at, before.Nano(), after.Nano())
	}
}
