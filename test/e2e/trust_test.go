package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
)

// The managers of the shared lab are three, which know each other, and whom they let in, by the cluster's CA alone.
func TestManagersRefuseCallersWithoutCredentials(t *testing.T) {
	lab := newLab(t)
	out, err := lab.Weir("get", "managers", "-o", "json")
	must(t, err)
	var managers []struct{ Name, Problem string }
	must(t, json.Unmarshal([]byte(out), &managers))
	if len(managers) != 3 {
		t.Errorf("managers are %v", managers)
	}
	for _, m := range managers {
		if m.Problem != "" {
			t.Errorf("%s: %s", m.Name, m.Problem)
		}
	}
	for _, n := range lab.Of(netlab.Manager) {
		curl := func(port int, path string) (string, error) {
			return lab.Run("client1", "curl", "-sS", "--max-time", "5", "--cacert", lab.CAFile(), "-w", "%{http_code}", "-o", "/dev/null",
				fmt.Sprintf("https://%s:%d%s", n.IPv4, port, path))
		}
		if got, err := curl(7400, "/healthz"); got != "200" {
			t.Errorf("%s: its health is %s to anybody, %v", n.Name, got, err)
		}
		if got, err := curl(7400, "/v1/vips"); got != "401" {
			t.Errorf("%s: a stranger who asks for VIPs gets %s, %v", n.Name, got, err)
		}
		// The store asks for a certificate of a manager before it says anything.
		if got, err := curl(7401, "/version"); err == nil {
			t.Errorf("%s: a stranger who asks the store gets %s", n.Name, got)
		}
		_, err := lab.Run("client1", lab.Find("weir"), "--manager", fmt.Sprintf("http://%s:7400", n.IPv4), "status")
		if err == nil || !strings.Contains(err.Error(), "speaks TLS only") {
			t.Errorf("%s: without TLS: %v", n.Name, err)
		}
	}
}

// A host keeps its certificate: it starts again without a token. When it has lost it, a token of its name lets it
// join again. Its data plane delivers all the time.
func TestAHostJoinsAgain(t *testing.T) {
	const host, program = "host3", "weir-agent"
	lab := newLab(t)
	stop := func() {
		t.Helper()
		p, err := lab.Process(host, program)
		must(t, err)
		must(t, p.Stop(unix.SIGTERM, bound))
	}
	again := func(more ...string) {
		t.Helper()
		_, err := lab.Restart(host, program, more...)
		must(t, err)
	}
	stop()
	again("--token-file", "")
	ready(t, lab)

	stop()
	must(t, os.RemoveAll(lab.DataDir(host)))
	again("--token-file", "")
	must(t, netlab.Poll(t.Context(), bound, func() error {
		if p, err := lab.Process(host, program); err != nil || p.Running() {
			return fmt.Errorf("%s runs without a certificate", host)
		}
		return nil
	}))
	if log := lab.Log(host, program); !strings.Contains(log, "join with --token-file and --ca-hash, as weir token create prints them") {
		t.Errorf("a host without a certificate says %s", log[max(0, len(log)-500):])
	}
	token, err := lab.Token(host)
	must(t, err)
	again(token...)
	ready(t, lab)
	out, err := lab.Weir("audit", "--limit", "5000")
	must(t, err)
	if joins := strings.Count(out, "host/"+host); joins < 2 {
		t.Errorf("the audit log has %d joins of %s:\n%s", joins, host, out)
	}
}
