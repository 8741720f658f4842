package webui

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netns"
)

const (
	labName = "webui"
	client  = "client1" // where packets come from
	browser = "client2"

	bound = time.Minute // on anything that is waited for
)

// Pages of a lab: they show what was sent, what answered, and what was killed.
func TestLabInBrowser(t *testing.T) {
	if os.Getenv("WEIR_UI") == "" {
		t.Skip("needs Node: make ui-test runs it")
	}
	l := startLab(t)
	made, err := l.Weir("user", "create", "ann", "--tenant", "*", "--role", "admin")
	must(t, err)
	leads, err := l.leader()
	must(t, err)
	urls := strings.Split(l.ManagerURLs(), ",")
	l.sessionsEndEverywhere(t, urls)
	measured, err := filepath.Abs("../../out/ui/lab.jsonl")
	must(t, err)
	must(t, os.RemoveAll(measured))
	must(t, os.MkdirAll(filepath.Dir(measured), 0o755))
	ns, err := l.NS(browser)
	must(t, err)
	var listener net.Listener
	must(t, ns.Do(func() error { listener = listen(t); return nil }))
	out := browse(t, ns.Start, []string{
		"WEIR_LAB=" + measured, "WEIR_URL=" + urls[(leads+1)%len(urls)], "WEIR_ADMIN=" + strings.TrimSpace(made), "WEIR_CONTROL=" + l.control(t).serve(t, listener),
	}, "lab.spec.ts")
	if !strings.Contains(out, "5 passed") {
		t.Error("not all of lab.spec.ts ran")
	}
}

// lab is one with what the browser's tests do to it.
type lab struct{ *netlab.Lab }

func startLab(t *testing.T) lab {
	t.Helper()
	must(t, netlab.Down(labName)) // what a run that crashed left
	bin, err := filepath.Abs("../../bin")
	must(t, err)
	up, err := netlab.Up(t.Context(), netlab.Config{
		Plan: netlab.Plan{Name: labName, Clients: 2, Managers: 3, Muxes: 2, Hosts: 2, Workloads: 2}, Bin: bin, Tied: true,
	})
	must(t, err)
	t.Cleanup(func() {
		up.Report(t)
		must(t, up.Down())
	})
	l := lab{up}
	must(t, l.apply(vip("shop", "203.0.113.10", l.Of(netlab.Workload))))
	must(t, l.apply(vip("shop-v6", "2001:db8:113::10", l.Of(netlab.Workload))))
	must(t, l.apply(vip("out", "203.0.113.11", nil)+"  snat: {workloads: [{host: host1, address: 10.3.1.11}]}\n"))
	must(t, l.WaitHealthy(t.Context(), bound))
	for _, address := range []string{"203.0.113.10", "2001:db8:113::10"} {
		must(t, l.WaitRouted(t.Context(), bound, netip.MustParseAddr(address), len(l.Of(netlab.Mux))))
	}
	return l
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// vip is the manifest of a VIP that workloads serve at port 80, by TCP and UDP.
func vip(name, address string, workloads []netlab.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s}\nspec:\n  address: '%s'\n", name, address)
	if len(workloads) == 0 {
		return b.String()
	}
	b.WriteString("  endpoints:\n")
	for _, of := range []string{"{protocol: TCP, port: 80, healthCheck: {tcp: {}}", "{protocol: UDP, port: 80"} {
		fmt.Fprintf(&b, "    - %s, backends: [", of)
		for _, n := range workloads {
			at := n.IPv4
			if netip.MustParseAddr(address).Is6() {
				at = n.IPv6
			}
			fmt.Fprintf(&b, "{host: %s, address: '%s', port: %d}, ", n.Host, at, netlab.EchoPort)
		}
		b.WriteString("]}\n")
	}
	return b.String()
}

func (l lab) apply(manifest string) error {
	file := filepath.Join(l.Dir(), "vip.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		return err
	}
	_, err := l.Weir("apply", "-f", file)
	return err
}

// leader is which of the managers leads, counted from 0.
func (l lab) leader() (int, error) {
	out, err := l.Weir("get", "managers", "-o", "json")
	if err != nil {
		return 0, err
	}
	var managers []struct {
		Name   string `json:"name"`
		Leader bool   `json:"leader"`
	}
	if err := json.Unmarshal([]byte(out), &managers); err != nil {
		return 0, err
	}
	for i, n := range l.Of(netlab.Manager) {
		for _, m := range managers {
			if m.Leader && m.Name == n.Name {
				return i, nil
			}
		}
	}
	return 0, fmt.Errorf("no manager leads: %s", out)
}

// sessionsEndEverywhere begins a session of a user at each manager, which that one alone knows, and ends the user.
func (l lab) sessionsEndEverywhere(t *testing.T, urls []string) {
	t.Helper()
	token, err := l.Weir("user", "create", "bob", "--tenant", "*", "--role", "viewer")
	must(t, err)
	ask := func(url string, args ...string) string {
		t.Helper()
		out, err := l.Run(browser, "curl", append([]string{"--silent", "--show-error", "--insecure", "--max-time", "10", "--header", "Sec-Fetch-Site: same-origin", url}, args...)...)
		must(t, err)
		return out
	}
	var cookies []string
	for _, url := range urls {
		answer := ask(url+"/ui/session", "--include", "--json", fmt.Sprintf(`{"token": %q}`, strings.TrimSpace(token)))
		_, cookie, found := strings.Cut(answer, "__Host-weir=")
		if !found {
			t.Fatalf("no session began at %s: %s", url, answer)
		}
		value, _, _ := strings.Cut(cookie, ";")
		cookies = append(cookies, "Cookie: __Host-weir="+value)
	}
	status := func(url, cookie string) string {
		t.Helper()
		return ask(url+"/ui/sessions", "--output", "/dev/null", "--write-out", "%{http_code}", "--header", cookie)
	}
	for i, url := range urls {
		if own, other := status(url, cookies[i]), status(url, cookies[(i+1)%len(urls)]); own != "200" || other != "401" {
			t.Errorf("%s answers %s in its own session, and %s in another manager's", url, own, other)
		}
	}
	_, err = l.Weir("user", "delete", "bob")
	must(t, err)
	deleted := time.Now()
	for i, url := range urls {
		must(t, netlab.Poll(t.Context(), bound, func() error {
			if got := status(url, cookies[i]); got != "401" {
				return fmt.Errorf("%s answers %s in a session of a user that is deleted", url, got)
			}
			return nil
		}))
	}
	t.Logf("no manager had a session of the user %v after it was deleted", time.Since(deleted))
}

func (l lab) kill(node, program string) error {
	p, err := l.Process(node, program)
	if err != nil {
		return err
	}
	return p.Stop(syscall.SIGKILL, bound)
}

func (l lab) control(t *testing.T) control {
	t.Helper()
	ns, err := l.NS(client)
	must(t, err)
	var s traffic
	return control{
		"/weir": func(w io.Writer, r *http.Request) error {
			out, err := l.Weir(r.URL.Query()["arg"]...)
			if err != nil {
				out = err.Error() // with what was written
			}
			_, err = io.WriteString(w, out)
			return err
		},
		// The client connects from a port; the echo answers with both ends.
		"/connect": func(w io.Writer, r *http.Request) error {
			to, err := netip.ParseAddr(r.URL.Query().Get("to"))
			if err != nil {
				return err
			}
			url := "http://" + netip.AddrPortFrom(to, 80).String()
			answer, err := l.Run(client, "curl", "--silent", "--show-error", "--globoff", "--max-time", "10", "--local-port", r.URL.Query().Get("port"), url)
			if err != nil {
				return err
			}
			_, err = io.WriteString(w, answer)
			return err
		},
		"/send": func(io.Writer, *http.Request) error { return s.start(t, ns, "203.0.113.10:80") },
		"/sent": func(w io.Writer, _ *http.Request) error {
			return json.NewEncoder(w).Encode(map[string]float64{"packets": float64(s.packets.Load()), "seconds": time.Since(s.began).Seconds()})
		},
		"/kill-mux2": func(io.Writer, *http.Request) error { return l.kill("mux2", "weir-mux") },
		"/start-mux2": func(io.Writer, *http.Request) error {
			_, err := l.Restart("mux2", "weir-mux")
			return err
		},
		"/lose-leader": func(io.Writer, *http.Request) error {
			leads, err := l.leader()
			if err != nil {
				return err
			}
			if err := l.kill(l.Of(netlab.Manager)[leads].Name, "weir-manager"); err != nil {
				return err
			}
			return netlab.Poll(t.Context(), bound, func() error { return l.apply(vip("new", "203.0.113.12", l.Of(netlab.Workload))) })
		},
	}
}

// traffic is datagrams that the client sends, as many a second as sent says.
type traffic struct {
	began   time.Time
	packets atomic.Int64
}

// start sends from many ports, which the router spreads over the muxes, until the test or the bound is over.
func (s *traffic) start(t *testing.T, ns *netns.NS, to string) error {
	conns := make([]net.Conn, 64)
	for i := range conns {
		if err := ns.Do(func() (err error) { conns[i], err = net.Dial("udp", to); return err }); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	s.began = time.Now()
	go func() {
		defer close(ended)
		defer cancel()
		defer func() {
			for _, conn := range conns {
				conn.Close()
			}
		}()
		for n := 0; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			for ; float64(n) < sent*time.Since(s.began).Seconds(); n++ {
				if _, err := conns[n%len(conns)].Write([]byte("datagram")); err == nil { // a router without a route refuses one
					s.packets.Add(1)
				}
			}
		}
	}()
	return nil
}
