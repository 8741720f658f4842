package logs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnusual(t *testing.T) {
	line := func(level, said string) string {
		return fmt.Sprintf("time=2026-11-21T12:00:00.000Z level=%s msg=%q\n", level, said)
	}
	many := func(level string, n int) string {
		var all strings.Builder
		for i := range n {
			all.WriteString(line(level, fmt.Sprint("line ", i)))
		}
		return all.String()
	}
	trim := func(s string) string { return strings.TrimSuffix(s, "\n") }
	crash := "panic: oh\n\ngoroutine 1 [running]:\nmain.main()\n\tmain.go:1\nexit\n"
	for name, c := range map[string]struct{ log, want string }{
		"nothing":           {"", ""},
		"nothing unusual":   {many("INFO", 9) + many("DEBUG", 9) + `{"time":"2026-11-21T12:00:00Z","level":"INFO","msg":"a"}` + "\n", ""},
		"among others":      {many("INFO", 9) + line("WARN", "a") + many("INFO", 9) + line("ERROR", "b"), trim(line("WARN", "a") + line("ERROR", "b"))},
		"the last of many":  {many("WARN", 9), trim(many("WARN", 9)[len(many("WARN", 4)):]) + "\n(and 4 lines more)"},
		"the first of some": {many("WARN", 9) + crash, "panic: oh\ngoroutine 1 [running]:\nmain.main()\n\tmain.go:1\nexit\n(and 9 lines more)"},
		"no log's line":     {"weir-mux: configure bgp: no peer\n", "weir-mux: configure bgp: no peer"},
		"long":              {strings.Repeat("x", 9999), strings.Repeat("x", reportWidth)},
	} {
		if diff := cmp.Diff(c.want, Unusual(c.log)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
