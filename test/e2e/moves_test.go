package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/testkit/netlab"
	"github.com/weirlb/weir/internal/testkit/stream"
)

// testMovesEnd holds connections without timestamps, and UDP flows, over moves of buckets on top of each
// other, a mux that dies in the middle, a manager that is killed, and over the end of the moves that nobody
// lives by. Buckets that waited for it move then. Nobody notices.
func (l *churnLab) testMovesEnd(t *testing.T) {
	l.start(t, l.spare)
	l.joined(t, l.spare)
	s := l.serve(t)
	many := l.gatherSome(t, noTimestamp, s, stream.TCP, longLived/10, newPerSecond/10)
	few := l.gatherSome(t, noTimestamp, s, stream.TCP, 6, 0)
	flows := l.gatherSome(t, modern, s, stream.UDP, 6, 0)

	first, second := []string{"host1-w1", "host2-w2"}, []string{"host3-w1", "host3-w2", "host3-w3"}
	l.change(t, s, 0, first...)
	after(t, pause)
	l.die(t, "mux1")
	after(t, pause)
	l.change(t, s, 0, second...) // which had got buckets of the first, and keep them for now
	manager, err := l.Process("manager", "weir-manager")
	must(t, err)
	must(t, manager.Stop(unix.SIGKILL, bound))
	after(t, pause)
	_, err = l.Restart("manager", "weir-manager")
	must(t, err)
	must(t, l.WaitStatus(t.Context(), bound, func(status netlab.Status) error {
		if n := s.ceding(status); n == 0 {
			return errors.New("no backend cedes buckets")
		}
		return nil
	}))
	many.unbroken(t)

	var ceding int
	must(t, l.WaitStatus(t.Context(), 3*bound, func(status netlab.Status) error {
		if ceding == 0 {
			ceding = s.ceding(status)
		}
		if n := s.ceding(status); n >= ceding {
			return fmt.Errorf("%d backends still cede buckets", n)
		}
		return nil
	}))
	after(t, settle)
	l.change(t, s, 1, append(first, second...)...) // undone
	after(t, settle)
	few.unbroken(t)
	flows.unbroken(t)
}

// ceding counts the backends of a service that buckets moved away from lately.
func (s *service) ceding(status netlab.Status) int {
	n := 0
	for _, vip := range status.VIPs {
		if !strings.HasPrefix(vip.Metadata.Name, s.name+"-") {
			continue
		}
		for _, b := range vip.Backends() {
			if b.BucketsCeded > 0 {
				n++
			}
		}
	}
	return n
}
