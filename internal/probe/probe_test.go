package probe

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlb/weir/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ample is a timeout that no answer here needs; brief is one that hanging servers outlast.
const (
	ample = 10 * time.Second
	brief = 100 * time.Millisecond
)

func tcpCheck(at netip.AddrPort, timeout time.Duration) model.HostBackend {
	return model.HostBackend{
		Endpoint: model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80},
		Tunnel:   at.Addr(), Backend: at,
		HealthCheck: &model.HealthCheck{Type: model.CheckTCP, Interval: timeout, Timeout: timeout, Rise: 1, Fall: 1},
	}
}

func httpCheck(at netip.AddrPort, timeout time.Duration) model.HostBackend {
	backend := tcpCheck(at, timeout)
	backend.HealthCheck.Type, backend.HealthCheck.Path = model.CheckHTTP, "/healthz"
	return backend
}

// serve answers every connection by handle, until the test ends.
func serve(t *testing.T, address string, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			handle(conn.(*net.TCPConn))
			conn.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

// answer reads the request's head and writes raw.
func answer(raw string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, raw)
	}
}

// hang reads until the other end gives up.
func hang(conn *net.TCPConn) { _, _ = io.Copy(io.Discard, conn) }

func reset(conn *net.TCPConn) {
	_, _ = http.ReadRequest(bufio.NewReader(conn))
	_ = conn.SetLinger(0)
}

func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

// want compares the whole text; an empty text means success.
func want(t *testing.T, err error, text string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if got != text {
		t.Errorf("got %q, want %q", got, text)
	}
}

func TestTCP(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		at := serve(t, address, func(*net.TCPConn) {})
		want(t, Run(t.Context(), tcpCheck(at, ample)), "")
		// The kernel answers for a server that hangs: the connection opens.
		want(t, Run(t.Context(), tcpCheck(serve(t, address, hang), ample)), "")
	}
	closed := closedPort(t)
	want(t, Run(t.Context(), tcpCheck(closed, ample)), fmt.Sprintf("connect %s: connection refused", closed))
}

func TestOtherPort(t *testing.T) {
	at := serve(t, "127.0.0.1:0", func(*net.TCPConn) {})
	backend := tcpCheck(netip.AddrPortFrom(at.Addr(), 1), ample)
	want(t, Run(t.Context(), backend), "connect 127.0.0.1:1: connection refused")
	backend.HealthCheck.Port = at.Port()
	want(t, Run(t.Context(), backend), "")
}

func TestUncheckedSucceeds(t *testing.T) {
	backend := tcpCheck(closedPort(t), ample)
	backend.HealthCheck = nil
	want(t, Run(t.Context(), backend), "")
}

// A full backlog leaves the SYN unanswered.
func TestConnectTimesOut(t *testing.T) {
	at := fullBacklog(t)
	want(t, Run(t.Context(), tcpCheck(at, brief)), fmt.Sprintf("connect %s: timed out after 100ms", at))
	want(t, Run(t.Context(), httpCheck(at, brief)), fmt.Sprintf("connect %s: timed out after 100ms", at))
}

func TestHTTPAnswers(t *testing.T) {
	long := strings.Repeat("x", 2*answerLimit)
	cases := []struct {
		name   string
		handle func(*net.TCPConn)
		want   string
	}{
		{"200", answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), ""},
		{"204", answer("HTTP/1.1 204 No Content\r\n\r\n"), ""},
		{"until close", answer("HTTP/1.0 200 OK\r\n\r\nok"), ""},
		{"chunked", answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), ""},
		{"redirect", answer("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"), ""},
		{"interim", answer("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"), "GET /healthz: status 503"},
		{"interim for ever", answer(strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 9)), "GET /healthz: more than 5 interim answers"},
		{"404", answer("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "GET /healthz: status 404"},
		{"503", answer("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"), "GET /healthz: status 503"},
		{"long body", answer("HTTP/1.1 200 OK\r\nContent-Length: " + fmt.Sprint(len(long)) + "\r\n\r\n" + long), ""},
		{"long header", answer("HTTP/1.1 200 OK\r\nX: " + long), "GET /healthz: answer's header is longer than 65536 bytes"},
		{"cut body", answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"), "GET /healthz: connection closed before the answer was whole"},
		{"silent close", answer(""), "GET /healthz: connection closed before the answer was whole"},
		{"reset", reset, "GET /healthz: connection reset by peer"},
		{"binary header", answer("HTTP/1.1 200 OK\r\n\xff\x00\x1b[2J\r\n\r\n"), `GET /healthz: malformed MIME header: missing colon: "\xff\x00\x1b[2J"`},
		{"long garbage", answer(long[:4096] + "\r\n"), `GET /healthz: malformed HTTP response "` + long[:reasonLimit-len(`malformed HTTP response "`)] + "..."},
		{"garbage", answer("SSH-2.0-OpenSSH_9.2\r\n"), `GET /healthz: malformed HTTP response "SSH-2.0-OpenSSH_9.2"`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			want(t, Run(t.Context(), httpCheck(serve(t, "127.0.0.1:0", c.handle), ample)), c.want)
		})
	}
}

func TestHTTPTimesOut(t *testing.T) {
	trickle := func(conn *net.TCPConn) {
		answer("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")(conn)
		for {
			if _, err := conn.Write([]byte("x")); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	for name, handle := range map[string]func(*net.TCPConn){"hanging": hang, "trickling": trickle} {
		t.Run(name, func(t *testing.T) {
			want(t, Run(t.Context(), httpCheck(serve(t, "127.0.0.1:0", handle), brief)), "GET /healthz: timed out after 100ms")
		})
	}
}

// A real server sees one plain request on a connection that closes after it.
func TestHTTPRequest(t *testing.T) {
	for _, c := range []struct{ address, vip, host, want string }{
		{"127.0.0.1:0", "203.0.113.10", "", "203.0.113.10"},
		{"[::1]:0", "2001:db8::10", "", "[2001:db8::10]"},
		{"127.0.0.1:0", "203.0.113.10", "shop.example", "shop.example"},
	} {
		listener, err := net.Listen("tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		requests := make(chan *http.Request, 1)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { requests <- r }))
		server.Listener.Close()
		server.Listener = listener
		server.Start()
		defer server.Close()

		backend := httpCheck(listener.Addr().(*net.TCPAddr).AddrPort(), ample)
		backend.Endpoint.VIP = netip.MustParseAddr(c.vip)
		backend.HealthCheck.Host, backend.HealthCheck.Path = c.host, "/healthz?deep=1"
		want(t, Run(t.Context(), backend), "")
		r := <-requests
		if r.Method != http.MethodGet || r.Host != c.want || r.RequestURI != "/healthz?deep=1" || !r.Close {
			t.Errorf("server saw %s %s, host %q, close %v; want host %q", r.Method, r.RequestURI, r.Host, r.Close, c.want)
		}
	}
}

func TestPresentable(t *testing.T) {
	for text, want := range map[string]string{
		"status 503":                 "status 503",
		"a\xffb\x00c\x1b[2Jd\ne":     "a?b?c?[2Jd?e",
		strings.Repeat("ü", 121):     strings.Repeat("ü", 120) + "...",
		"größer " + string('\u202e'): "größer ?",
	} {
		if got := presentable(text); got != want {
			t.Errorf("%q is presented as %q, want %q", text, got, want)
		}
	}
}

func TestCancelEndsTheCheck(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	at := serve(t, "127.0.0.1:0", func(conn *net.TCPConn) { cancel(); hang(conn) })
	if err := Run(ctx, httpCheck(at, time.Hour)); err == nil {
		t.Error("a cancelled check succeeded")
	}
}
