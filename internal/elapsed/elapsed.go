// Package elapsed writes times that have passed, for people: "3m12s".
package elapsed

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// Ago says how long before now t was: "12s ago", or "never".
func Ago(t *timestamppb.Timestamp, now time.Time) string {
	if t == nil || t.AsTime().IsZero() || t.AsTime().Unix() == 0 {
		return "never"
	}
	return Span(now.Sub(t.AsTime())) + " ago"
}

// Span writes a duration with its two largest units: "3m12s", "2d4h".
func Span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}
