package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/echo"
	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
)

const (
	healthVIP = "203.0.113.80"
	// bound is for what takes a second or two when the machine is idle.
	bound = 30 * time.Second
	// settle is how long connections are held behind a step: each has some blocks more.
	settle = 5 * time.Second
)

// healthLab is a lab whose four workloads stand behind one VIP, checked every 200 ms.
type healthLab struct {
	*netlab.Lab
	t *testing.T
}

func newHealthLab(t *testing.T) *healthLab {
	t.Helper()
	bin, err := binFolder()
	must(t, err)
	lab, err := netlab.Up(t.Context(), netlab.Config{
		Plan: netlab.Plan{Name: "health", Clients: 1, Muxes: 2, Hosts: 2, Workloads: 2}, Bin: bin, Tied: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lab.Report(t)
		if err := lab.Down(); err != nil {
			t.Error(err)
		}
	})
	l := &healthLab{Lab: lab, t: t}
	l.apply(nil)
	for _, n := range lab.Of(netlab.Workload) {
		l.await(n.Name, "healthy")
	}
	return l
}

// apply gives every workload the weight 1, or its own of weights.
func (l *healthLab) apply(weights map[string]int) {
	l.t.Helper()
	var m strings.Builder
	fmt.Fprintf(&m, "apiVersion: weir/v1\nkind: VIP\nmetadata: {name: health}\nspec:\n  address: %s\n  endpoints:\n"+
		"  - protocol: TCP\n    port: 80\n"+
		"    healthCheck: {http: {path: /healthz}, interval: 200ms, timeout: 200ms, rise: 2, fall: 3}\n    backends:\n", healthVIP)
	for _, n := range l.Of(netlab.Workload) {
		weight := 1
		if own, ok := weights[n.Name]; ok {
			weight = own
		}
		fmt.Fprintf(&m, "    - {address: %s, port: %d, host: %s, weight: %d}\n", n.IPv4, netlab.EchoPort, n.Host, weight)
	}
	file := filepath.Join(l.t.TempDir(), "health.yaml")
	if err := os.WriteFile(file, []byte(m.String()), 0o600); err != nil {
		l.t.Fatal(err)
	}
	if out, err := l.Weir("apply", "-f", file, "--wait"); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
}

// backendStatus is what the manager says of a workload.
type backendStatus struct {
	Address string `json:"address"`
	Health  string `json:"health"`
	Reason  string `json:"reason"`
	Buckets int    `json:"buckets"`
}

func (l *healthLab) status(workload string) (backendStatus, error) {
	out, err := l.Weir("get", "vips", "health", "-o", "json")
	if err != nil {
		return backendStatus{}, err
	}
	var vip struct {
		Status struct {
			Endpoints []struct {
				Backends []backendStatus `json:"backends"`
			} `json:"endpoints"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(out), &vip); err != nil {
		return backendStatus{}, fmt.Errorf("read %s: %w", out, err)
	}
	node, err := l.Node(workload)
	if err != nil {
		return backendStatus{}, err
	}
	for _, e := range vip.Status.Endpoints {
		if i := slices.IndexFunc(e.Backends, func(b backendStatus) bool { return b.Address == node.IPv4.String() }); i >= 0 {
			return e.Backends[i], nil
		}
	}
	return backendStatus{}, fmt.Errorf("%s is in no endpoint of %s", workload, out)
}

// await polls until a workload is as wanted, "healthy" or "unhealthy: reason", and in the buckets
// only if it is healthy.
func (l *healthLab) await(workload, want string) {
	l.t.Helper()
	err := netlab.Poll(l.t.Context(), bound, func() error {
		s, err := l.status(workload)
		if err != nil {
			return err
		}
		got := strings.TrimSuffix(s.Health+": "+s.Reason, ": ")
		if got != want || (s.Buckets > 0) != (s.Health == "healthy") {
			return fmt.Errorf("%s is %s with %d buckets, want %s", workload, got, s.Buckets, want)
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// request makes new connections and returns how many each workload answered; none may fail.
func (l *healthLab) request(count int) (map[string]int, error) {
	result, err := netload.RunLoad(l.t.Context(), l, "client1", load.Config{
		URL: "http://" + healthVIP + "/", Requests: count, Concurrency: 8, Timeout: 5 * time.Second,
	})
	if err == nil && result.Failed > 0 {
		err = fmt.Errorf("%d of %d requests failed: %v", result.Failed, result.Requests, result.Failures[0])
	}
	return result.Backends, err
}

// avoids polls until new connections no longer reach the workload, since the muxes may get the
// tables a moment after the manager has them; then it holds that none does.
func (l *healthLab) avoids(workload string) {
	l.t.Helper()
	none := func(count int) error {
		got, err := l.request(count)
		if err == nil && got[workload] > 0 {
			err = fmt.Errorf("%s got some of %d new connections: %v", workload, count, got)
		}
		return err
	}
	if err := netlab.Poll(l.t.Context(), bound, func() error { return none(50) }); err != nil {
		l.t.Fatal(err)
	}
	if err := none(500); err != nil {
		l.t.Error(err)
	}
}

// reachesAll polls until new connections reach every workload.
func (l *healthLab) reachesAll() {
	l.t.Helper()
	err := netlab.Poll(l.t.Context(), bound, func() error {
		got, err := l.request(200)
		if err == nil && len(got) < len(l.Of(netlab.Workload)) {
			err = fmt.Errorf("200 new connections reached only %v", got)
		}
		return err
	})
	if err != nil {
		l.t.Fatal(err)
	}
}

// openConn is a connection of the client that stays open.
type openConn struct {
	net.Conn
	read    *bufio.Reader
	backend string // that answered the first request
}

// ask makes one request on the connection and returns who answered.
func (c *openConn) ask() (string, error) {
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", healthVIP); err != nil {
		return "", err
	}
	response, err := http.ReadResponse(c.read, nil)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer echo.Answer
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return "", err
	}
	_, err = c.read.Discard(c.read.Buffered())
	return answer.Backend, err
}

// open opens connections that stay open, with one request each.
func (l *healthLab) open(count int) []*openConn {
	l.t.Helper()
	client, err := l.NS("client1")
	if err != nil {
		l.t.Fatal(err)
	}
	all := make([]*openConn, count)
	err = client.Do(func() error {
		for i := range all {
			conn, err := net.DialTimeout("tcp", healthVIP+":80", 5*time.Second)
			if err != nil {
				return err
			}
			all[i] = &openConn{Conn: conn, read: bufio.NewReader(conn)}
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		for _, c := range all {
			c.Close()
		}
	})
	for _, c := range all {
		if c.backend, err = c.ask(); err != nil {
			l.t.Fatal(err)
		}
	}
	return all
}

// untouched holds that connections still reach the workload that they did, but for those to except.
func untouched(t *testing.T, conns []*openConn, except string) {
	t.Helper()
	asked := 0
	for _, c := range conns {
		if c.backend == except {
			continue
		}
		asked++
		if got, err := c.ask(); err != nil || got != c.backend {
			t.Errorf("an open connection to %s now gets %q, %v", c.backend, got, err)
		}
	}
	if asked == 0 {
		t.Error("no connection was open to another workload")
	}
}

// A backend that stops gets no new connection after its fall count, the connections of the others
// are untouched, and it gets new ones when it is back. One that drains keeps its open connections.
func TestHealthAndDrain(t *testing.T) {
	t.Parallel()
	l := newHealthLab(t)
	l.reachesAll()

	for _, workload := range []string{"host1-w1", "host2-w2"} { // behind an interface, and native
		t.Run("stopped "+workload, func(t *testing.T) {
			l.t = t
			l.stopAndReturn(workload)
		})
	}
	t.Run("drained", func(t *testing.T) {
		l.t = t
		conns := l.open(40)
		l.apply(map[string]int{"host1-w2": 0})
		l.avoids("host1-w2")
		untouched(t, conns, "") // those to the drained workload too
		l.apply(nil)
		l.reachesAll()
		untouched(t, conns, "")
	})
	t.Run("failing", func(t *testing.T) {
		l.t = t
		l.testFalseAlarm("host2-w1")
	})
	t.Run("killed", func(t *testing.T) {
		l.t = t
		l.testKilled("host1-w1")
		l.testKilled("host2-w2")
	})
	t.Run("agent restarted", func(t *testing.T) {
		l.t = t
		conns := l.open(40)
		agent, err := l.Process("host1", "weir-agent")
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Stop(syscall.SIGKILL, bound); err != nil {
			t.Fatal(err)
		}
		untouched(t, conns, "")
		l.reachesAll()
		if _, err := l.Restart("host1", "weir-agent"); err != nil {
			t.Fatal(err)
		}
		l.stopAndReturn("host1-w1") // it checks again
		untouched(t, conns, "host1-w1")
	})
	t.Run("host silent", func(t *testing.T) {
		l.t = t
		l.testSilentHost("host2")
	})
}

// stopAndReturn kills a workload's server, and starts it again.
func (l *healthLab) stopAndReturn(workload string) {
	l.t.Helper()
	conns := l.open(40)
	server, err := l.Process(workload, "weir")
	if err != nil {
		l.t.Fatal(err)
	}
	if err := server.Stop(syscall.SIGKILL, bound); err != nil {
		l.t.Fatal(err)
	}
	node, err := l.Node(workload)
	if err != nil {
		l.t.Fatal(err)
	}
	l.await(workload, fmt.Sprintf("unhealthy: connect %s:%d: connection refused", node.IPv4, netlab.EchoPort))
	l.avoids(workload)
	untouched(l.t, conns, workload)
	if _, err := l.Restart(workload, "weir"); err != nil {
		l.t.Fatal(err)
	}
	l.await(workload, "healthy")
	l.reachesAll()
	untouched(l.t, conns, workload)
}

// healthz has a workload's own health check fail or pass.
func (l *healthLab) healthz(workload, how string) {
	l.t.Helper()
	node, err := l.Node(workload)
	if err != nil {
		l.t.Fatal(err)
	}
	out, err := l.Run(node.Host, "curl", "-sS", "-f", "-X", "POST", fmt.Sprintf("http://%s:%d/health/%s", node.IPv4, netlab.EchoPort, how))
	if err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
}
