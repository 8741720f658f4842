package uiproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/trust"
)

// Bounds of what comes by loopback.
const (
	maxBody        = 1 << 20 // bytes of a request
	maxHeaders     = 16 << 10
	maxConnections = 64 // of each family
	sendTime       = 10 * time.Second
	idleTime       = 2 * time.Minute
	leaveTime      = 2 * time.Second // for what is under way when it ends
)

// proxy serves one browser.
type proxy struct {
	gate    *gate
	forward *httputil.ReverseProxy
	warn    io.Writer
	opened  func() // the address was opened
	left    chan struct{}
	leave   func() // the user has signed out: closes left
}

// newProxy returns one that sends what gate lets through to a manager.
func newProxy(g *gate, base *url.URL, by http.RoundTripper, warn io.Writer) *proxy {
	left := make(chan struct{})
	p := &proxy{gate: g, warn: warn, opened: func() {}, left: left, leave: sync.OnceFunc(func() { close(left) })}
	p.forward = &httputil.ReverseProxy{
		Transport: by,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = base.Scheme, base.Host, ""
			// A manager judges this program, by what the user's configuration has it show: nothing of the browser counts there.
			for _, name := range []string{
				"Cookie", "Authorization", "Origin", "Referer", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Sec-Fetch-User",
				trust.OnBehalfHeader, trust.ForwardedByHeader,
			} {
				r.Out.Header.Del(name)
			}
		},
		ModifyResponse: func(answer *http.Response) error {
			answer.Header.Del("Set-Cookie") // the session is this proxy's
			return nil
		},
		FlushInterval: -1, // streams
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil { // else nobody is left to tell
				say(w, http.StatusServiceUnavailable, "unavailable", err.Error())
			}
		},
		ErrorLog: log.New(io.Discard, "", 0), // an answer that broke off: the page says so
	}
	return p
}

// say answers with an error, in the form of the API, which the page shows.
func say(w http.ResponseWriter, status int, code, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"code": code, "message": why}) //nolint:errcheck // the browser is gone
}

// ServeHTTP answers a request of anybody on the machine.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	err := wellFormed(r)
	if err == nil && strings.HasPrefix(r.URL.Path, openPath) {
		p.open(w, r)
		return
	}
	if err == nil {
		err = p.gate.admit(r)
	}
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		say(w, refused.status, "permission_denied", refused.why)
	case r.URL.Path == leavePath:
		p.session(w, r)
	default:
		p.pass(w, r)
	}
}

// open exchanges the secret of the address for a cookie. The answer is a page that goes on to the managers' one: a browser
// sends a strict cookie with what a page of the same origin asks for, and not with what follows a link from elsewhere.
func (p *proxy) open(w http.ResponseWriter, r *http.Request) {
	ahead := r.Header.Get("Sec-Purpose")+r.Header.Get("Purpose") != "" // a browser that guesses what its user will open
	switch {
	case !p.gate.names(r.Host):
		say(w, errOtherName.status, "permission_denied", errOtherName.why)
		return
	case r.Method != http.MethodGet || ahead:
		say(w, http.StatusServiceUnavailable, "unavailable", "the address is opened once, by its user")
		return
	}
	cookie, err := p.gate.open(strings.TrimPrefix(r.URL.Path, openPath))
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		say(w, refused.status, "permission_denied", refused.why)
		return
	case err != nil && !p.gate.known(r):
		fmt.Fprintln(p.warn, "weir: somebody has opened the address once more, and was refused: if the page is not open in your browser, press Ctrl-C")
		say(w, http.StatusForbidden, "permission_denied", err.Error()+", and is good for one browser: run weir ui again, and open the address that it prints")
		return
	case err == nil:
		http.SetCookie(w, &http.Cookie{Name: cookieName, Value: cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		p.opened()
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	io.WriteString(w, redirectTo(pagePath)) //nolint:errcheck // the browser is gone
}

// session answers for the session of the page, which is this proxy's and not a manager's.
func (p *proxy) session(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodDelete {
		say(w, http.StatusForbidden, "permission_denied", "weir ui signs you in by your configuration: to be another user run it with --config")
		return
	}
	p.gate.end()
	w.WriteHeader(http.StatusNoContent)
	p.leave()
}

// pass sends a request to a manager, once it is there as a whole.
func (p *proxy) pass(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(sendTime)) //nolint:errcheck // the server's connections have deadlines
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		say(w, http.StatusBadRequest, "invalid_argument", "the request broke off")
		return
	}
	control.SetReadDeadline(time.Time{}) //nolint:errcheck // likewise: a stream is open for long
	r.Body = io.NopCloser(bytes.NewReader(body))
	// What this proxy says of its own answers the manager says of its own.
	clear(w.Header())
	p.forward.ServeHTTP(w, r)
}

// listen listens on loopback, with both families: at port, or at a port that is free.
func listen(ctx context.Context, port uint16) ([]net.Listener, error) {
	var config net.ListenConfig
	const tries = 16 // a port may be free of one family alone
	for try := 1; ; try++ {
		four, err := config.Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return nil, fmt.Errorf("listen on loopback: %w: choose another port with --port", err)
		}
		if !hasIPv6(ctx) {
			return []net.Listener{four}, nil
		}
		six, err := config.Listen(ctx, "tcp6", fmt.Sprintf("[::1]:%d", four.Addr().(*net.TCPAddr).Port))
		if err == nil {
			return []net.Listener{four, six}, nil
		}
		four.Close()
		if port != 0 || try == tries {
			return nil, fmt.Errorf("listen on loopback: %w: choose another port with --port", err)
		}
	}
}

// hasIPv6 says whether loopback has its address of IPv6.
func hasIPv6(ctx context.Context) bool {
	probe, err := new(net.ListenConfig).Listen(ctx, "tcp6", "[::1]:0")
	if err != nil {
		return false
	}
	probe.Close()
	return true
}

// serve answers until ctx ends or the user has signed out.
func (p *proxy) serve(ctx context.Context, listeners []net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	server := &http.Server{
		Handler: p, ReadHeaderTimeout: sendTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeaders, ErrorLog: log.New(io.Discard, "", 0),
	}
	for _, l := range listeners {
		group.Go(func() error {
			if err := server.Serve(netutil.LimitListener(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	group.Go(func() error {
		select {
		case <-ctx.Done():
		case <-p.left:
		}
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
		defer cancel()
		if server.Shutdown(within) != nil {
			server.Close()
		}
		return nil
	})
	return group.Wait()
}
