package elapsed

import (
	"testing"
	"time"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", time.Minute: "1m0s", 3*time.Minute + 12*time.Second: "3m12s",
		time.Hour: "1h0m", 26*time.Hour + time.Minute: "1d2h",
	} {
		if got := Span(d); got != want {
			t.Errorf("%s is written as %q, want %q", d, got, want)
		}
	}
}
