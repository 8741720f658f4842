package churn

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/stream"
	"github.com/weirlb/weir/internal/testkit/testlab"
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
	testlab.After(t, pause)
	l.die(t, "mux1")
	testlab.After(t, pause)
	l.change(t, s, 0, second...) // which had got buckets of the first, and keep them for now
	manager, err := l.Process("manager", "weir-manager")
	testlab.Must(t, err)
	testlab.Must(t, manager.Stop(unix.SIGKILL, bound))
	testlab.After(t, pause)
	_, err = l.Restart("manager", "weir-manager")
	testlab.Must(t, err)
	var ceding int
	// poll asks until the number of backends that cede buckets fits. A mux that is dead does not count.
	poll := func(fits func(n int) bool) {
		t.Helper()
		testlab.Must(t, netlab.Poll(t.Context(), 3*bound, func() error {
			status, err := l.Status()
			if n := s.ceding(status); err == nil && !fits(n) {
				err = fmt.Errorf("%d backends cede buckets, there were %d", n, ceding)
			}
			return err
		}))
	}
	poll(func(n int) bool { ceding = n; return n > 0 })
	many.unbroken(t)
	poll(func(n int) bool { return n < ceding })
	testlab.After(t, settle)
	l.change(t, s, 1, append(first, second...)...) // undone
	testlab.After(t, settle)
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
			if b.BucketsDraining > 0 {
				n++
			}
		}
	}
	return n
}
