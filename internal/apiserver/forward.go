package apiserver

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/audit"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

const (
	// forwardDial bounds how long a dead leader is dialed.
	forwardDial = time.Second
	// forwardPing is how long a leader may take to answer a ping, sent after forwardDial without a word: one that
	// has much to do takes its time, one whose machine died is replaced by then.
	forwardPing = 2 * time.Second
	// forwardTLS bounds the handshake with a leader that is frozen.
	forwardTLS = 5 * time.Second
)

// readsByPost says whether a path of REST is called by POST and writes nothing.
func readsByPost(path string) bool {
	return strings.HasSuffix(path, "/explain") || path == "/v1/explain/path"
}

// writes says whether a request is for the leader.
func writes(r *http.Request) bool {
	if strings.HasPrefix(r.URL.Path, restRoot) {
		return r.Method != http.MethodGet && r.Method != http.MethodHead && !readsByPost(r.URL.Path)
	}
	return handling[r.URL.Path] == byLeader
}

// forwarder hands on what another manager is to carry out.
type forwarder struct{ *Config }

// forward hands requests that write on to the leader, whatever their protocol.
func (f forwarder) forward(next http.Handler) http.Handler {
	proxy := f.proxy()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !writes(r) {
			if err := f.Replica.AwaitAcknowledged(r.Context()); err != nil {
				apierr.Write(w, r, err)
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		leader, err := f.Replica.AwaitLeader(r.Context())
		switch {
		case err != nil:
			apierr.Write(w, r, rpc.RetryError(err))
		case leader == "":
			if r.Header.Get(trust.ForwardedByHeader) != "" {
				w = &writtenWriter{ResponseWriter: w, store: f.Store}
			}
			next.ServeHTTP(w, r)
		case r.Header.Get(trust.ForwardedByHeader) != "":
			apierr.Write(w, r, rpc.RetryError(fmt.Errorf("manager %s leads no more: try again", f.Name)))
		default:
			audit.End(r.Context(), nil) // the leader audits what it answers
			r.URL.Host = leader
			proxy.ServeHTTP(w, r)
		}
	})
}

// toLeader sends requests to the leader, over connections that were opened with the newest certificate of
// this manager.
type toLeader struct {
	identity *pki.Identity
	now      func() time.Time

	mu         sync.Mutex
	credential *trust.Credential // of transport
	transport  *http.Transport
}

// RoundTrip sends one request.
func (l *toLeader) RoundTrip(r *http.Request) (*http.Response, error) {
	return l.current().RoundTrip(r)
}

func (l *toLeader) current() *http.Transport {
	l.mu.Lock()
	defer l.mu.Unlock()
	newest := l.identity.Current()
	if l.transport != nil && newest == l.credential {
		return l.transport
	}
	if l.transport != nil {
		l.transport.CloseIdleConnections()
	}
	l.credential, l.transport = newest, &http.Transport{
		DialContext:     (&net.Dialer{Timeout: forwardDial}).DialContext,
		Protocols:       &http.Protocols{},
		HTTP2:           &http.HTTP2Config{SendPingTimeout: forwardDial, PingTimeout: forwardPing},
		IdleConnTimeout: idleTimeout,
	}
	if l.identity.Insecure() {
		l.transport.Protocols.SetUnencryptedHTTP2(true)
		return l.transport
	}
	l.transport.Protocols.SetHTTP2(true)
	l.transport.TLSHandshakeTimeout = forwardTLS
	l.transport.TLSClientConfig = trust.ClientTLS(l.identity.Authority().Certificate, func() *trust.Credential { return newest }, l.now)
	return l.transport
}

// proxy hands a request on to the manager that its URL names.
func (f forwarder) proxy() *httputil.ReverseProxy {
	scheme := "https"
	if f.Identity.Insecure() {
		scheme = "http"
	}
	return &httputil.ReverseProxy{
		Transport: &toLeader{identity: f.Identity, now: f.Now},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: scheme, Host: r.In.URL.Host})
			r.Out.Header.Set(trust.ForwardedByHeader, f.Name)
			// The leader believes this manager, not what the caller showed to it.
			r.Out.Header.Del("Authorization")
			r.Out.Header.Del("Cookie")
			if encoded, err := trust.FromContext(r.In.Context()).Encode(); err == nil {
				r.Out.Header.Set(trust.OnBehalfHeader, encoded)
			} else {
				r.Out.Header.Del(trust.OnBehalfHeader)
			}
		},
		ModifyResponse: func(answer *http.Response) error {
			f.showWritten(answer)
			answer.Header.Del("Cache-Control") // this manager has said it
			answer.Header.Del(nosniff)
			return nil
		},
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			err = fmt.Errorf("reach the leader at %s: %w", r.URL.Host, err)
			var dial *net.OpError
			if errors.As(err, &dial) && dial.Op == "dial" { // it never got there
				apierr.Write(w, r, rpc.RetryError(err))
				return
			}
			apierr.Write(w, r, connect.NewError(connect.CodeUnavailable, err))
		},
	}
}
