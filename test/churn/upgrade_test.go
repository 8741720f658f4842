package churn

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/stream"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// Every program is replaced under load, and nobody notices: muxes hand over or crash, one comes back
// with tables of another size, agents stop or crash, and so does the manager. While they are away
// backends change.
func (l *churnLab) testUpgrade(t *testing.T) {
	s := l.serve(t)
	connections := l.gatherSome(t, modern, s, stream.TCP, longLived/2, newPerSecond/4)
	older := l.gatherSome(t, noTimestamp, s, stream.TCP, longLived/4, newPerSecond/4)
	flows := l.gatherSome(t, modern, s, stream.UDP, longLived/4, 0)

	muxes, hosts := l.atWork(netlab.Mux), l.atWork(netlab.Host)
	l.replace(t, "weir-mux", unix.SIGKILL, nil, muxes[0])
	l.replace(t, "weir-mux", unix.SIGUSR2, []string{"--max-flows", "131072"}, muxes[1])
	l.replace(t, "weir-mux", unix.SIGUSR2, nil, muxes[2:]...)
	l.replace(t, "weir-agent", unix.SIGKILL, nil, hosts[0])
	l.replace(t, "weir-agent", unix.SIGTERM, nil, hosts[1:]...)
	l.change(t, s, 0, "host1-w1", "host2-w2")
	l.replace(t, "weir-manager", unix.SIGKILL, nil, l.Of(netlab.Manager)...)
	l.change(t, s, 1, "host1-w1", "host2-w2")
	testlab.After(t, settle)
	for _, c := range []*crowd{connections, older, flows} {
		c.unbroken(t)
	}
}

// atWork lists the nodes of a kind whose programs run.
func (l *churnLab) atWork(kind netlab.Kind) []netlab.Node {
	var of []netlab.Node
	for _, n := range l.Of(kind) {
		if len(l.Processes(n.Name)) > 0 {
			of = append(of, n)
		}
	}
	return of
}

// replace ends a program on some nodes, starts it again, with more arguments, and waits until the nodes
// take part as before.
func (l *churnLab) replace(t *testing.T, program string, signal syscall.Signal, more []string, nodes ...netlab.Node) {
	t.Helper()
	began := time.Now()
	for _, n := range nodes {
		p, err := l.Process(n.Name, program)
		testlab.Must(t, err)
		testlab.Must(t, p.Stop(signal, bound))
		_, err = l.Restart(n.Name, program, more...)
		testlab.Must(t, err)
	}
	for _, n := range nodes {
		// Under load a mux that makes tables anew may have to wait for its programs for half a minute.
		testlab.Must(t, netlab.Poll(t.Context(), 3*bound, func() error { return l.working(n) }))
		t.Logf("%s on %s, ended at %s by %v, is back %s after %.1f s", program, n.Name, began.Format(clock), signal,
			strings.Join(more, " "), time.Since(began).Seconds())
	}
}

// working says what a node lacks until it takes part.
func (l *churnLab) working(n netlab.Node) error {
	status, err := l.Status()
	if err != nil || n.Kind == netlab.Manager {
		return err
	}
	return status.Ready(n)
}
