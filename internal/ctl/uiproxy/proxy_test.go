package uiproxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlb/weir/internal/ctl/session"
	"github.com/weirlb/weir/internal/manager"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
)

// startManager runs a manager with TLS on dir until stop is called.
func startManager(t *testing.T, dir, address string) (at string, stop func()) {
	t.Helper()
	m, err := manager.New(t.Context(), manager.Config{DataDir: dir, Listen: address, Version: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		m.Close()
	}
	t.Cleanup(stop)
	return m.Address().String(), stop
}

// start runs the command and returns the address that it prints, and how it ends.
func start(t *testing.T, args ...string) (address string, ended <-chan error) {
	t.Helper()
	s := session.New(nil)
	root := &cobra.Command{Use: "weir", SilenceUsage: true, SilenceErrors: true}
	s.AddFlags(root)
	root.AddCommand(Command(s))
	root.SetArgs(append([]string{"ui", "--open=false"}, args...))
	read, write := io.Pipe()
	root.SetOut(write)
	root.SetErr(io.Discard)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(ctx)
		write.CloseWithError(io.EOF)
		done <- err
		close(done)
	}()
	t.Cleanup(func() { cancel(); <-done })
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatalf("the command printed no address: %v", <-done)
	}
	return strings.TrimSpace(line), done
}

// browser is one that resolves names below localhost as browsers do.
type browser struct {
	t    *testing.T
	http *http.Client
	base string // http://weir-....localhost:port
	dial func(context.Context, string, string) (net.Conn, error)
}

func newBrowser(t *testing.T, address string) *browser {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, base: "http://" + u.Host}
	b.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+u.Port())
	}
	transport := &http.Transport{DialContext: b.dial}
	t.Cleanup(transport.CloseIdleConnections)
	b.http = &http.Client{Transport: transport, Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return b
}

// send makes a request as a script of the page does, unless change says otherwise.
func (b *browser) send(method, path, body string, change ...func(*http.Request)) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Content-Type", "application/json")
	for _, do := range change {
		do(r)
	}
	w, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return w, string(text)
}

func (b *browser) expect(what string, w *http.Response, text string, status int, has string) {
	b.t.Helper()
	if w.StatusCode != status || !strings.Contains(text, has) {
		b.t.Errorf("%s: got %d %s, want %d with %q", what, w.StatusCode, text, status, has)
	}
}

const whoAmI = "/weir.v1.TrustService/WhoAmI"

// The printed address leads to the page, whose calls are of the user of the configuration, and whose streams stream. Who
// signs out ends the program.
func TestPageByTheUsersConfiguration(t *testing.T) {
	dir := t.TempDir()
	startManager(t, dir, "127.0.0.1:0")
	address, ended := start(t, "--config", pki.AdminFile(dir))
	b := newBrowser(t, address)
	opened, text := b.send(http.MethodGet, strings.TrimPrefix(address, b.base), "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") })
	b.expect("the address", opened, text, http.StatusOK, `content="0; url=/ui/"`)
	for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
		if cookie := opened.Header.Get("Set-Cookie"); !strings.Contains(cookie, want) || strings.Contains(cookie, "Domain") {
			t.Errorf("the cookie %q has no %s", cookie, want)
		}
	}
	w, text := b.send(http.MethodGet, "/ui/", "")
	b.expect("the page", w, text, http.StatusOK, "<title>Weir</title>")
	if w.Header.Get("Content-Security-Policy") == "" || len(w.Header.Values("Cache-Control")) != 1 {
		t.Errorf("the page has other headers than a manager gives it: %v", w.Header)
	}
	// What a stranger's program puts into requests of a browser counts nowhere.
	w, text = b.send(http.MethodPost, whoAmI, "{}", func(r *http.Request) {
		r.Header.Set("Weir-On-Behalf-Of", "x")
		r.Header.Set("Weir-Forwarded-By", "m1")
		r.Header.Set("Authorization", "Bearer x")
	})
	b.expect("a call", w, text, http.StatusOK, `"user/admin"`)
	b.follows()
	w, text = b.send(http.MethodPost, "/ui/session", `{"token": "x"}`)
	b.expect("to sign in as another", w, text, http.StatusForbidden, "by your configuration")
	w, text = b.send(http.MethodDelete, "/ui/session", "")
	b.expect("to sign out", w, text, http.StatusNoContent, "")
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the program goes on after its user has signed out")
	}
}

// follows opens a stream and waits for its first message.
func (b *browser) follows() {
	b.t.Helper()
	request := append([]byte{0, 0, 0, 0, 2}, "{}"...)
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.base+"/weir.v1.WeirService/WatchVIPs", bytes.NewReader(request))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Content-Type", "application/connect+json")
	w, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer w.Body.Close()
	if _, err := io.ReadFull(w.Body, make([]byte, 5)); err != nil || w.StatusCode != http.StatusOK {
		b.t.Errorf("a stream: %d, %v", w.StatusCode, err)
	}
}

// counted counts what comes to a manager.
type counted struct {
	http.RoundTripper

	n atomic.Int32
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// open runs a proxy whose requests to the manager are counted, and returns a browser that has opened it, with the cookie.
func open(t *testing.T) (b *browser, p *proxy, passed *counted, cookie *http.Cookie) {
	t.Helper()
	dir := t.TempDir()
	startManager(t, dir, "127.0.0.1:0")
	access, err := rpc.ReadConfig(pki.AdminFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	base, by, err := access.Transport()
	if err != nil {
		t.Fatal(err)
	}
	passed = &counted{RoundTripper: by}
	var warnings bytes.Buffer
	p = newProxy(newGate(), base, passed, &warnings)
	listeners, err := listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.serve(ctx, listeners) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !strings.Contains(warnings.String(), "opened the address once more") {
			t.Errorf("the user isn't told that somebody else had the address: %q", warnings.String())
		}
	})
	b = newBrowser(t, fmt.Sprintf("http://%s:%d", p.gate.name, listeners[0].Addr().(*net.TCPAddr).Port))
	w, text := b.send(http.MethodGet, openPath+p.gate.secret, "", func(r *http.Request) { r.Header.Set("Sec-Purpose", "prefetch") })
	b.expect("a browser that guesses", w, text, http.StatusServiceUnavailable, "once")
	w, text = b.send(http.MethodGet, openPath+p.gate.secret, "")
	b.expect("the address", w, text, http.StatusOK, "/ui/")
	w, text = b.send(http.MethodGet, openPath+p.gate.secret, "")
	b.expect("the address again, in the same browser", w, text, http.StatusOK, "/ui/")
	thief := newBrowser(t, b.base)
	w, text = thief.send(http.MethodGet, openPath+p.gate.secret, "")
	b.expect("the address in another browser", w, text, http.StatusForbidden, "good for one browser")
	return b, p, passed, b.http.Jar.Cookies(&url.URL{Scheme: "http", Host: strings.TrimPrefix(b.base, "http://"), Path: "/"})[0]
}

// attempt is a request that nobody but the page may make, or not even that.
type attempt struct {
	what, method, path string
	change             func(*http.Request)
	want               int
}

// attempts are made by who has no cookie of the browser, or has it sent by another page or program.
func attempts(p *proxy, cookie *http.Cookie) []attempt {
	shown := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookieName, Value: value}) }
	}
	from := func(site, origin string) func(*http.Request) {
		return func(r *http.Request) {
			shown(cookie.Value)(r)
			r.Header.Del("Sec-Fetch-Site")
			for name, value := range map[string]string{"Sec-Fetch-Site": site, "Origin": origin} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
		}
	}
	host := func(name string) func(*http.Request) {
		return func(r *http.Request) { shown(cookie.Value)(r); r.Host = name }
	}
	with := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { shown(cookie.Value)(r); r.Header.Set(name, value) }
	}
	return []attempt{
		{"no cookie", "POST", whoAmI, func(*http.Request) {}, 403},
		{"no cookie, the page", "GET", "/ui/", func(*http.Request) {}, 403},
		{"no cookie, to sign out", "DELETE", "/ui/session", func(*http.Request) {}, 403},
		{"a forged cookie", "POST", whoAmI, shown(cookie.Value + "x"), 403},
		{"an empty cookie", "POST", whoAmI, shown(""), 403},
		{"the secret as a cookie", "POST", whoAmI, shown(p.gate.secret), 403},
		{"a wrong secret", "GET", openPath + "x", func(*http.Request) {}, 403},
		{"no secret", "GET", openPath, func(*http.Request) {}, 403},
		{"a name that leads to loopback", "POST", whoAmI, host("evil.example"), 421},
		{"that, with the port", "GET", "/ui/", host("evil.example:80"), 421},
		{"the secret by that name", "GET", openPath + p.gate.secret, host("evil.example"), 421},
		{"loopback by its address", "POST", whoAmI, host("127.0.0.1"), 421},
		{"loopback by its name", "POST", whoAmI, host("localhost"), 421},
		{"a name below its own", "POST", whoAmI, host("x." + p.gate.name), 421},
		{"a name that begins as its own", "POST", whoAmI, host(p.gate.name + ".evil.example"), 421},
		{"a page elsewhere", "POST", whoAmI, from("cross-site", "https://evil.example"), 403},
		{"a page elsewhere reads", "GET", "/ui/sessions", from("cross-site", ""), 403},
		{"another server on loopback", "POST", whoAmI, from("same-site", "http://localhost:1"), 403},
		{"a form elsewhere in an old browser", "POST", whoAmI, from("", "https://evil.example"), 403},
		{"of an opaque origin", "POST", whoAmI, from("", "null"), 403},
		{"a program with the cookie", "POST", whoAmI, from("", ""), 403},
		{"an address that was typed, to change", "POST", whoAmI, from("none", ""), 403},
		{"another port of its name", "POST", whoAmI, from("", "http://"+p.gate.name+":1"), 403},
		{"a websocket", "GET", "/ui/", func(r *http.Request) { with("Connection", "Upgrade")(r); r.Header.Set("Upgrade", "websocket") }, 400},
		{"REST", "GET", "/v1/vips", shown(cookie.Value), 404},
		{"what is no page", "GET", "/openapi.json", shown(cookie.Value), 404},
		{"metrics", "GET", "/metrics", shown(cookie.Value), 404},
		{"gRPC by another prefix", "POST", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", shown(cookie.Value), 404},
		{"PUT", "PUT", "/ui/", shown(cookie.Value), 405},
		{"PATCH", "PATCH", whoAmI, shown(cookie.Value), 405},
		{"OPTIONS", "OPTIONS", whoAmI, shown(cookie.Value), 405},
		{"TRACE", "TRACE", "/ui/", shown(cookie.Value), 405},
	}
}

// Nothing of other users of the machine, and of pages elsewhere, comes to a manager.
func TestStrangersGetNothing(t *testing.T) {
	b, p, passed, cookie := open(t)
	w, text := b.send(http.MethodPost, whoAmI, "{}")
	b.expect("the page itself", w, text, http.StatusOK, "user/admin")
	before := passed.n.Load()
	stranger := newBrowser(t, b.base)
	for _, c := range attempts(p, cookie) {
		w, text := stranger.send(c.method, c.path, "", c.change)
		stranger.expect(c.what, w, text, c.want, `"message"`)
		if w.Header.Get("Access-Control-Allow-Origin") != "" || w.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: got %v", c.what, w.Header)
		}
	}
	stranger.raw(p.gate.name, cookie.Value)
	if n := passed.n.Load() - before; n != 0 {
		t.Errorf("%d requests of strangers came to the manager", n)
	}
}

// raw sends what no library of HTTP would send.
func (b *browser) raw(name, cookie string) {
	b.t.Helper()
	head := fmt.Sprintf(" HTTP/1.1\r\nHost: %s\r\nCookie: %s=%s\r\nSec-Fetch-Site: same-origin\r\nConnection: close\r\n", name, cookieName, cookie)
	for what, c := range map[string]struct{ line, more, want string }{
		"a path that goes up":       {"GET /ui/../v1/vips", "", " 400 "},
		"that, in hexadecimal":      {"GET /ui/%2e%2e/v1/vips", "", " 400 "},
		"a slash in hexadecimal":    {"GET /ui/..%2fv1%2fvips", "", " 400 "},
		"a path without a root":     {"GET //evil.example/ui/", "", " 400 "},
		"two slashes":               {"GET /ui//session", "", " 400 "},
		"a backslash":               {"GET /ui/..\\v1/vips", "", " 400 "},
		"a URL in place of a path":  {"GET http://evil.example/ui/", "", " 400 "},
		"its own URL":               {"GET http://" + name + "/ui/", "", " 400 "},
		"a tunnel":                  {"CONNECT evil.example:443", "", " 400 "},
		"a body of no known length": {"POST " + whoAmI, "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", " 411 "},
		"a body that is too large":  {"POST " + whoAmI, "Content-Length: 99999999\r\n", " 413 "},
		"two hosts":                 {"GET /ui/", "Host: evil.example\r\n", " 400 "},
		"headers that are too long": {"GET /ui/", "X: " + strings.Repeat("x", 64<<10) + "\r\n", " 431 "},
	} {
		conn, err := b.dial(b.t.Context(), "tcp", "")
		if err != nil {
			b.t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(20 * time.Second)) // the read tells
		io.WriteString(conn, c.line+head+c.more+"\r\n")    // likewise
		line, err := bufio.NewReader(conn).ReadString('\n')
		conn.Close()
		if err != nil || !strings.Contains(line, c.want) {
			b.t.Errorf("%s: got %q, %v, want%s", what, line, err, c.want)
		}
	}
}

// The page goes on with another manager when the one that it read from is lost, and says so meanwhile.
func TestPageGoesOnWithAnotherManager(t *testing.T) {
	dir := t.TempDir()
	first, stop := startManager(t, dir, "127.0.0.1:0")
	// The same cluster will be found at another address.
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	second := reserved.Addr().String()
	reserved.Close()
	address, _ := start(t, "--config", pki.AdminFile(dir), "--manager", "https://"+first+",https://"+second)
	b := newBrowser(t, address)
	b.send(http.MethodGet, strings.TrimPrefix(address, b.base), "")
	w, text := b.send(http.MethodPost, whoAmI, "{}")
	b.expect("by the first", w, text, http.StatusOK, "user/admin")
	stop()
	w, text = b.send(http.MethodPost, whoAmI, "{}")
	b.expect("while there is none", w, text, http.StatusServiceUnavailable, `"unavailable"`)
	startManager(t, dir, second)
	for deadline := time.Now().Add(30 * time.Second); ; {
		if w, text = b.send(http.MethodPost, whoAmI, "{}"); w.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("by the second: %d %s", w.StatusCode, text)
		}
	}
}

// Both families of loopback are this program's: a browser that resolves its name may try either.
func TestListensOnBothFamiliesOfLoopback(t *testing.T) {
	listeners, err := listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	port := listeners[0].Addr().(*net.TCPAddr).Port
	if len(listeners) != 2 || listeners[1].Addr().(*net.TCPAddr).Port != port {
		t.Fatalf("listens at %v", listeners)
	}
	for _, l := range listeners {
		if at := l.Addr().(*net.TCPAddr); !at.IP.IsLoopback() {
			t.Errorf("listens at %s", at)
		}
	}
	listeners[0].Close()
	if taken, err := listen(t.Context(), uint16(port)); err == nil || !strings.Contains(err.Error(), "--port") {
		t.Errorf("a stranger has the port of the other family: %v, %v", taken, err)
	}
	listeners[1].Close()
}

// What is wrong with the configuration is said before anything listens.
func TestRefusedUsersAreTold(t *testing.T) {
	s := session.New(nil)
	root := &cobra.Command{Use: "weir", SilenceUsage: true, SilenceErrors: true}
	s.AddFlags(root)
	root.AddCommand(Command(s))
	at, _ := startManager(t, t.TempDir(), "127.0.0.1:0")
	other := t.TempDir()
	startManager(t, other, "127.0.0.1:0")
	root.SetArgs([]string{"ui", "--open=false", "--config", pki.AdminFile(other), "--manager", "https://" + at})
	var out bytes.Buffer
	root.SetOut(&out)
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "open the web page: the manager's certificate is refused") || out.Len() > 0 {
		t.Errorf("another cluster's manager: %v, printed %q", err, out.String())
	}
}
