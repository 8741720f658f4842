package manager

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

const (
	// forwardedBy marks a request that another manager handed on: it is not handed on again.
	forwardedBy = "Weir-Forwarded-By"
	// forwardDial bounds how long a dead leader is dialed.
	forwardDial = time.Second
)

// written are the calls that write the desired state: the leader answers them. REST's are those that are
// no GET.
var written = map[string]bool{
	weirv1connect.WeirServiceApplyVIPsProcedure:         true,
	weirv1connect.WeirServiceCreateVIPProcedure:         true,
	weirv1connect.WeirServiceUpdateVIPProcedure:         true,
	weirv1connect.WeirServicePatchVIPProcedure:          true,
	weirv1connect.WeirServiceDeleteVIPProcedure:         true,
	weirv1connect.WeirServiceCreateAddressPoolProcedure: true,
	weirv1connect.WeirServiceUpdateAddressPoolProcedure: true,
	weirv1connect.WeirServiceDeleteAddressPoolProcedure: true,
	weirv1connect.WeirServiceDeleteNodeProcedure:        true,
	weirv1connect.ClusterServiceRegisterNodeProcedure:   true,
	weirv1connect.ClusterServiceJoinManagerProcedure:    true,
	weirv1connect.ClusterServiceDeleteManagerProcedure:  true,
}

// elsewhere are calls of REST that are no GET and write nothing.
func elsewhere(path string) bool { return strings.HasSuffix(path, "/explain") }

// writes says whether a request is for the leader.
func writes(r *http.Request) bool {
	if strings.HasPrefix(r.URL.Path, restRoot) {
		return r.Method != http.MethodGet && r.Method != http.MethodHead && !elsewhere(r.URL.Path)
	}
	return written[r.URL.Path]
}

// forward hands requests that write on to the leader, whatever their protocol.
func (m *Manager) forward(next http.Handler) http.Handler {
	proxy := m.proxy()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !writes(r) {
			next.ServeHTTP(w, r)
			return
		}
		leader, err := m.awaitLeader(r.Context())
		switch {
		case err != nil:
			refuse(w, r, rpc.RetryError(err))
		case leader == "":
			next.ServeHTTP(w, r)
		case r.Header.Get(forwardedBy) != "":
			refuse(w, r, rpc.RetryError(fmt.Errorf("manager %s leads no more: try again", m.cfg.Name)))
		default:
			noteEnd(r.Context(), nil) // the leader audits what it answers
			r.URL.Host = leader
			proxy.ServeHTTP(w, r)
		}
	})
}

// proxy hands a request on to the manager that its URL names.
func (m *Manager) proxy() *httputil.ReverseProxy {
	var protocols http.Protocols
	scheme, config := "http", (*tls.Config)(nil)
	if m.security.insecure {
		protocols.SetUnencryptedHTTP2(true)
	} else {
		protocols.SetHTTP2(true)
		scheme, config = "https", trust.ClientTLS(m.security.authority.Certificate, m.security.current.Load, m.now)
	}
	return &httputil.ReverseProxy{
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{Timeout: forwardDial}).DialContext,
			Protocols:       &protocols,
			TLSClientConfig: config,
			HTTP2:           &http.HTTP2Config{SendPingTimeout: forwardDial, PingTimeout: forwardDial},
		},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: scheme, Host: r.In.URL.Host})
			r.Out.Header.Set(forwardedBy, m.cfg.Name)
			// The leader believes this manager, not what the caller showed to it.
			r.Out.Header.Del("Authorization")
			if encoded, err := trust.FromContext(r.In.Context()).Encode(); err == nil {
				r.Out.Header.Set(trust.OnBehalfHeader, encoded)
			} else {
				r.Out.Header.Del(trust.OnBehalfHeader)
			}
		},
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			err = fmt.Errorf("reach the leader at %s: %w", r.URL.Host, err)
			var dial *net.OpError
			if errors.As(err, &dial) && dial.Op == "dial" { // it never got there
				refuse(w, r, rpc.RetryError(err))
				return
			}
			refuse(w, r, connect.NewError(connect.CodeUnavailable, err))
		},
	}
}

// refuse answers a request of any protocol with err.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	if writer := connect.NewErrorWriter(); writer.IsSupported(r) {
		writer.Write(w, r, err) //nolint:errcheck // the client is gone: nobody is left to tell
		return
	}
	gateway := runtime.NewServeMux()
	_, marshaler := runtime.MarshalerForRequest(gateway, r)
	restError(r.Context(), gateway, marshaler, w, r, err)
}
