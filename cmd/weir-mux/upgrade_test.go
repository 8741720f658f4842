package main

import (
	"strings"
	"syscall"
	"testing"
)

// Tables of another size take the place of the live ones while datagrams flow: not before the manager has
// filled them, and without a gap in packets or routes.
func TestTablesOfAnotherSizeTakeOver(t *testing.T) {
	l := newLab(t)
	first, s := l.forwards()
	before := l.identity()
	events := l.routeEvents()
	if err := first.end(syscall.SIGUSR2); err != nil {
		t.Errorf("weir-mux ended with %v", err)
	}

	// Without a manager there is nothing to fill the new tables with: the old ones forward.
	second := l.start("--max-endpoints", "128", "--manager", "http://127.0.0.1:1")
	eventually(t, "the session is up again", func() bool { return strings.Contains(second.log.String(), "session is up") })
	s.more(300)
	if after := l.identity(); after != before {
		t.Errorf("kernel objects:\n%s\nbefore:\n%s", after, before)
	}
	second.kill()
	s.more(100)

	third := l.start("--max-endpoints", "128")
	eventually(t, "the new tables forward", func() bool { return strings.Contains(third.log.String(), "new tables forward") })
	s.more(500)
	after := l.identity()
	attachment := func(identity string) string {
		_, rest, _ := strings.Cut(identity, "link ")
		id, _, _ := strings.Cut(rest, " ")
		return id
	}
	if attachment(after) != attachment(before) {
		t.Errorf("the program was attached anew: %s, before %s", attachment(after), attachment(before))
	}
	old := map[string]bool{}
	for line := range strings.Lines(before) {
		old[strings.TrimSpace(line)] = true
	}
	for line := range strings.Lines(after) {
		if old[strings.TrimSpace(line)] {
			t.Errorf("%s is still live", strings.TrimSpace(line))
		}
	}
	eventually(t, "the report says so", func() bool { return l.ready(5) })
	if got := l.status(); got.Generation != 5 || got.Endpoints[0].Counter.Packets < 500 {
		t.Errorf("status is %+v", got)
	}
	if lines := events(); len(lines) > 0 {
		t.Errorf("the route had events: %q", lines)
	}
	sent, missing := s.lost()
	if len(missing) > 0 {
		t.Errorf("%d of %d datagrams were lost: %v", len(missing), sent, missing)
	}
}
