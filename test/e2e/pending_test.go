package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/lab/netlab"
)

const pendingVIP = "203.0.113.81"

// newPendingLab is a lab whose second host has not joined, and a VIP with a workload on each: one endpoint is served, and
// three others are checked by UDP and by TLS.
func newPendingLab(t *testing.T) (lab *netlab.Lab, applied string) {
	t.Helper()
	bin, err := binFolder()
	must(t, err)
	lab, err = netlab.Up(t.Context(), netlab.Config{
		Plan: netlab.Plan{Name: "pending", Clients: 1, Muxes: 2, Hosts: 2, Workloads: 1}, Bin: bin, Later: []string{"host2"}, Tied: true,
	})
	must(t, err)
	t.Cleanup(func() {
		lab.Report(t)
		must(t, lab.Down())
	})
	var m strings.Builder
	fmt.Fprintf(&m, "apiVersion: weir/v1\nkind: VIP\nmetadata: {name: pending}\nspec:\n  address: %s\n  endpoints:\n", pendingVIP)
	for _, e := range []string{
		"protocol: TCP, port: 80, healthCheck: {http: {path: /healthz}, interval: 500ms}",
		"protocol: UDP, port: 80, healthCheck: {udp: {send: ping, expect: ping}, interval: 500ms}",
		"protocol: UDP, port: 81, healthCheck: {udp: {answer: optional}, port: 9, interval: 500ms, timeout: 400ms}",
		"protocol: TCP, port: 443, healthCheck: {https: {}, interval: 500ms}",
	} {
		fmt.Fprintf(&m, "  - {%s, backends: [", e)
		for _, n := range lab.Of(netlab.Workload) {
			fmt.Fprintf(&m, "{address: %s, port: %d, host: %s},", n.IPv4, netlab.EchoPort, n.Host)
		}
		m.WriteString("]}\n")
	}
	file := filepath.Join(t.TempDir(), "pending.yaml")
	must(t, os.WriteFile(file, []byte(m.String()), 0o600))
	applied, err = lab.Weir("apply", "-f", file, "--wait")
	must(t, err)
	return lab, applied
}

// says polls until a command's output has all of the texts.
func says(t *testing.T, lab *netlab.Lab, command string, texts ...string) {
	t.Helper()
	must(t, netlab.Poll(t.Context(), bound, func() error {
		out, err := lab.Weir(strings.Fields(command)...)
		if err != nil {
			return err
		}
		said := strings.Join(strings.Fields(out), " ")
		for _, text := range texts {
			if !strings.Contains(said, text) {
				return fmt.Errorf("weir %s does not say %q: %s", command, text, out)
			}
		}
		return nil
	}))
}

// A VIP with a host that has not joined serves by the others, and by that host once it joins. Checks by UDP and TLS reach
// workloads behind their interfaces, and their reasons reach the user. An observation tells of both muxes.
func TestAVIPWaitsForItsHost(t *testing.T) {
	lab, applied := newPendingLab(t)
	if !strings.Contains(applied, "waits: host host2 has not joined") {
		t.Errorf("applied: %s", applied)
	}
	workloads := lab.Of(netlab.Workload)
	here, there := workloads[0], workloads[1]
	says(t, lab, "describe vip pending", "Programmed: false, Pending,", ": host host2 has not joined; 2 of 2 connected muxes run it", "pending: host host2 has not joined",
		fmt.Sprintf("%s:%d %s - 1 100.0%%", here.IPv4, netlab.EchoPort, here.Host),
		fmt.Sprintf("send to %s:9: port unreachable", here.IPv4),
		fmt.Sprintf("TLS with %s:%d: the server speaks no TLS", here.IPv4, netlab.EchoPort))
	must(t, lab.WaitRouted(t.Context(), bound, netip.MustParseAddr(pendingVIP), 2))

	observed := make(chan string, 1)
	go func() {
		out, err := lab.Weir("observe", "--vip", pendingVIP, "--connections", "--duration", "5s")
		if err != nil {
			out += err.Error()
		}
		observed <- out
	}()
	by := map[string]int{}
	ask := func() {
		out, err := lab.Run("client1", "curl", "-sS", "-o", "/dev/null", "--max-time", "2", "-w", "%header{X-Backend}", "http://"+pendingVIP+"/")
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		by[strings.TrimSpace(out)]++
	}
	must(t, netlab.Poll(t.Context(), bound, func() error { // while both muxes are observed
		ask()
		select {
		case out := <-observed:
			if !strings.Contains(out, "mux1 forward_") || !strings.Contains(out, "mux2 forward_") || !strings.Contains(out, " > "+pendingVIP+":80 SYN") {
				t.Errorf("observed:\n%s", out)
			}
			return nil
		default:
			return fmt.Errorf("the observation goes on after %v", by)
		}
	}))
	if len(by) != 1 || by[here.Name] == 0 {
		t.Errorf("before the host joined these answered: %v", by)
	}

	must(t, lab.Join("host2"))
	says(t, lab, "describe vip pending", "Programmed: true, Programmed", fmt.Sprintf("TLS with %s:%d", there.IPv4, netlab.EchoPort))
	must(t, netlab.Poll(t.Context(), bound, func() error {
		if ask(); by[there.Name] == 0 {
			return fmt.Errorf("the host joined, and these answer: %v", by)
		}
		return nil
	}))
}
