package upgrade

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// change applies the shop's manifest with another weight, which is a change that every mux must run.
func (r *rig) change(bin string, weight int) {
	r.t.Helper()
	manifest := fmt.Sprintf(`apiVersion: weir/v1
kind: VIP
metadata: {name: shop, tenant: shop}
spec:
  address: %s
  endpoints:
    - protocol: TCP
      port: 80
      backends:
        - {host: host1, address: 10.3.1.11, port: 8080, weight: %d}
        - {host: host2, address: 10.3.2.11, port: 8080, weight: 3}
`, vip, weight)
	path := filepath.Join(r.t.TempDir(), "shop.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.wait("a change is applied", func() error {
		return r.try(bin, "apply", "-f", path, "--wait", "--timeout", "20s")
	})
}

// versions are what the nodes run, by name.
func (r *rig) versions() map[string]string {
	r.t.Helper()
	var nodes []struct{ Name, Version string }
	text := r.operate(r.new, "get", "nodes", "-o", "json")
	if err := json.Unmarshal([]byte(text), &nodes); err != nil {
		r.t.Fatalf("%v in:\n%s", err, text)
	}
	found := map[string]string{}
	for _, n := range nodes {
		found[n.Name] = n.Version
	}
	return found
}

func (r *rig) becomes(node string, old bool) {
	r.t.Helper()
	r.wait(node+" is registered in its version", func() error {
		if v := r.versions()[node]; (v == "previous") != old || v == "" {
			return fmt.Errorf("%s runs %q", node, v)
		}
		return nil
	})
}

// The order of docs/operations/upgrade.md: managers, muxes, agents. After each step a change reaches every mux, and
// no call is lost in all that time. Then it runs without TLS, and gets it, as docs/operations/trust.md tells.
func TestPreviousReleaseBecomesThisOne(t *testing.T) {
	r := newRig(t)
	r.change(r.old, 1)
	before := r.operate(r.old, "get", "vips", "-o", "json")
	tr := r.traffic()
	tr.more(r)

	r.replace("manager", "weir-manager", r.new, syscall.SIGTERM)
	r.wait("the new manager answers", func() error { return r.try(r.new, "status") })
	if after := r.operate(r.new, "get", "vips", "-o", "json"); len(after) == 0 || !strings.Contains(after, vip) {
		t.Errorf("VIPs are %s\nbefore %s", after, before)
	}
	r.becomes("mux1", true)
	r.change(r.new, 2)
	tr.more(r)
	for i, mux := range []string{"mux1", "mux2"} {
		r.replace(mux, "weir-mux", r.new, syscall.SIGUSR2)
		r.becomes(mux, false)
		r.wait("the BGP session of "+mux+" is up", func() error {
			text, err := os.ReadFile(r.log(mux, "weir-mux"))
			if err == nil && !strings.Contains(string(text), "bgp session is up") {
				err = fmt.Errorf("it is not")
			}
			return err
		})
		r.change(r.new, 4+i)
		tr.more(r)
	}
	for i, host := range []string{"host1", "host2"} {
		r.replace(host, "weir-agent", r.new, syscall.SIGTERM)
		r.becomes(host, false)
		r.change(r.new, 6+i)
		tr.more(r)
	}
	r.losesTLS()
	r.getsTLS(tr)
	tr.end(t)
	if t.Failed() {
		t.Log(r.logs())
	}
}

const plainManager = "http://10.4.1.2:7400"

// losesTLS restarts all programs without it.
func (r *rig) losesTLS() {
	r.t.Helper()
	r.replace("manager", "weir-manager", r.new, syscall.SIGTERM, insecure)
	r.access = []string{"--manager", plainManager}
	r.wait("the manager answers without TLS", func() error { return r.try(r.new, "status") })
	for _, host := range []string{"host1", "host2"} {
		r.replace(host, "weir-agent", r.new, syscall.SIGTERM, "--manager", plainManager)
		r.wait(host+" is connected", func() error { return r.connected(host) })
	}
	for _, mux := range []string{"mux1", "mux2"} {
		r.replace(mux, "weir-mux", r.new, syscall.SIGUSR2, "--manager", plainManager)
		r.wait(mux+" is connected", func() error { return r.connected(mux) })
	}
}

// getsTLS gives an installation without TLS a CA: hosts and muxes join by tokens. Hosts go
// first: muxes without a manager go on with the tables that they have, and need not hear of hosts that are silent.
func (r *rig) getsTLS(tr *traffic) {
	r.t.Helper()
	const manager = "https://10.4.1.2:7400"
	r.replace("manager", "weir-manager", r.new, syscall.SIGTERM)
	if err := r.try(r.new, "status"); err == nil {
		r.t.Error("the manager answers without TLS")
	}
	r.access = []string{"--config", filepath.Join(dataDir("manager"), "admin.yaml"), "--manager", manager}
	r.wait("the manager answers with TLS", func() error { return r.try(r.new, "status") })
	for _, kind := range []struct {
		role, program string
		signal        syscall.Signal
		nodes         []string
	}{
		{"agent", "weir-agent", syscall.SIGTERM, []string{"host1", "host2"}},
		{"mux", "weir-mux", syscall.SIGUSR2, []string{"mux1", "mux2"}},
	} {
		file := filepath.Join(r.t.TempDir(), "token")
		told := r.operate(r.new, "token", "create", "--role", kind.role, "--uses", "2", "--write", file)
		_, hash, _ := strings.Cut(told, "ca-hash")
		for _, node := range kind.nodes {
			r.replace(node, kind.program, r.new, kind.signal, "--manager", manager,
				"--token-file", file, "--ca-hash", strings.Fields(hash)[0])
			r.wait(node+" is connected", func() error { return r.connected(node) })
			tr.more(r)
		}
	}
	r.change(r.new, 9)
	tr.more(r)
}

// connected says whether a node has a stream.
func (r *rig) connected(node string) error {
	var nodes []struct {
		Name   string
		Status struct{ Connected bool }
	}
	text := r.operate(r.new, "get", "nodes", "-o", "json")
	if err := json.Unmarshal([]byte(text), &nodes); err != nil {
		return err
	}
	for _, n := range nodes {
		if n.Name == node && n.Status.Connected {
			return nil
		}
	}
	return fmt.Errorf("%s is not connected", node)
}
