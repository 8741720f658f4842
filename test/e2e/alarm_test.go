package e2e

import (
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/lab/stream"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// testFalseAlarm has a backend fail its checks while it lives: new connections go elsewhere, and none of those
// that are open breaks, with timestamps or without, before it is well again and after.
func (l *healthLab) testFalseAlarm(workload string) {
	client, err := l.NS("client1")
	must(l.t, err)
	for _, timestamps := range []string{"1", "0"} {
		must(l.t, client.Sysctl("net.ipv4.tcp_timestamps", timestamps))
		streams := l.stream(100)
		l.healthz(workload, "fail")
		l.await(workload, "unhealthy: GET /healthz: status 503")
		l.avoids(workload)
		testlab.After(l.t, settle)
		l.healthz(workload, "pass")
		l.await(workload, "healthy")
		l.reachesAll()
		testlab.After(l.t, settle)
		l.ends(streams, func(string) bool { return false }, workload)
	}
	must(l.t, client.Sysctl("net.ipv4.tcp_timestamps", "1"))
}

// testKilled kills a backend's process: its own clients see that at once, and nobody else sees anything.
func (l *healthLab) testKilled(workload string) {
	streams := l.stream(100)
	server, err := l.Process(workload, "weir")
	must(l.t, err)
	must(l.t, server.Stop(unix.SIGKILL, bound))
	l.avoids(workload)
	testlab.After(l.t, settle)
	l.ends(streams, func(backend string) bool { return backend == workload }, workload)
	_, err = l.Restart(workload, "weir")
	must(l.t, err)
	l.await(workload, "healthy")
	l.reachesAll()
}

// testSilentHost crashes a host: after a while its connections are sent to others, which reset them. The
// others do not notice.
func (l *healthLab) testSilentHost(host string) {
	streams := l.stream(100)
	must(l.t, l.Crash(host))
	for _, n := range l.Of(netlab.Workload) {
		if n.Host == host {
			l.await(n.Name, "unhealthy: no word from the agent of "+host)
			l.avoids(n.Name)
		}
	}
	testlab.After(l.t, settle)
	l.ends(streams, func(backend string) bool { return strings.HasPrefix(backend, host+"-") }, host+"-w1")
	must(l.t, l.Revive(host))
	l.reachesAll()
}

// stream opens streams to the VIP.
func (l *healthLab) stream(count int) *netload.Streams {
	l.t.Helper()
	streams, err := netload.StartStreams(l.t.Context(), l, "client1", stream.Config{
		Network: stream.TCP, Target: netip.MustParseAddrPort(healthVIP + ":80"), Streams: count, Interval: 200 * time.Millisecond,
		Patience: 2 * bound,
	})
	must(l.t, err)
	must(l.t, streams.WaitOpened(l.t.Context(), bound))
	return streams
}

// ends stops the streams, and holds that exactly those broke that are due, and that some were open to a
// workload.
func (l *healthLab) ends(streams *netload.Streams, due func(backend string) bool, workload string) {
	l.t.Helper()
	r, err := streams.Stop()
	must(l.t, err)
	l.t.Logf("%d streams to %v, %d broken; slowest answer %v", r.Opened, r.Backends, r.Broken, r.Slowest)
	want := 0
	for backend, count := range r.Backends {
		if due(backend) {
			want += count
		}
	}
	if r.Opened != 100 || r.Backends[workload] == 0 || r.Broken != want {
		l.t.Errorf("%d streams opened, %d of them to %s, and %d broke, want %d", r.Opened, r.Backends[workload], workload, r.Broken, want)
	}
	for _, b := range r.Breaks {
		if !due(b.Backend) {
			l.t.Errorf("a stream to %s broke: %+v", b.Backend, b)
		}
	}
}
