package rpc

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/trust"
)

// frozen is a manager that was stopped: its kernel takes connections, and nobody answers.
func frozen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// startTLS serves as a manager of a cluster does, until kill.
func startTLS(t *testing.T, authority *trust.Authority, handler http.Handler) (address string, kill func() error) {
	t.Helper()
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := authority.Sign(trust.Identity{Kind: trust.Manager, Name: "manager"}, request, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	credential, err := key.Credential(certificate, authority.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler: handler, TLSConfig: trust.ServerTLS(func() *trust.Credential { return credential }),
		Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
	}
	server.Protocols.SetHTTP2(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.ServeTLS(l, "", "")
	}()
	t.Cleanup(func() { server.Close(); <-ended })
	return l.Addr().String(), server.Close
}

func newAuthority(t *testing.T) *trust.Authority {
	t.Helper()
	authority, err := trust.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func tlsClient(t *testing.T, ca *x509.Certificate, managers ...string) *Client {
	t.Helper()
	c, err := Access{Managers: strings.Join(managers, ","), CA: ca}.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func weirHandler(m weirv1connect.WeirServiceHandler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(weirv1connect.NewWeirServiceHandler(m))
	return mux
}

func TestFrozenManagersArePassed(t *testing.T) {
	authority := newAuthority(t)
	alive, _ := startTLS(t, authority, weirHandler(&manager{version: "alive"}))
	c := tlsClient(t, authority.Certificate, frozen(t), frozen(t), alive)
	status, err := c.GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	if err != nil || status.GetVersion() != "alive" {
		t.Errorf("got %v, %v, want the answer of the one that is not frozen", status, err)
	}
}

func TestOnlyFrozenManagersAreNamed(t *testing.T) {
	one, other := frozen(t), frozen(t)
	_, err := tlsClient(t, newAuthority(t).Certificate, one, other).GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	if want := "reach the manager at " + one + ": no answer, at " + other + ": no answer: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// One of another cluster, or without TLS, must not keep a caller from the others; alone, it is told.
func TestStrangersArePassed(t *testing.T) {
	authority := newAuthority(t)
	alive, _ := startTLS(t, authority, weirHandler(&manager{version: "alive"}))
	stranger, _ := startTLS(t, newAuthority(t), weirHandler(&manager{}))
	insecure := httptest.NewServer(weirHandler(&manager{}))
	defer insecure.Close()
	plain := insecure.Listener.Addr().String()
	if _, err := tlsClient(t, authority.Certificate, stranger, plain, alive).GetStatus(t.Context(), &weirv1.GetStatusRequest{}); err != nil {
		t.Error(err)
	}
	_, err := tlsClient(t, authority.Certificate, stranger).GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	if !errors.As(err, new(*trust.ServerError)) {
		t.Errorf("got %v, want that its certificate is refused", err)
	}
	_, err = tlsClient(t, authority.Certificate, plain).GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	if !errors.As(err, new(*SchemeError)) {
		t.Errorf("got %v, want that it speaks no TLS", err)
	}
}

// dying is two managers that lose their first call: by dying, or by telling that the leader is lost.
type dying struct {
	weirv1connect.UnimplementedWeirServiceHandler
	kill  func() error // nil: it lives on
	calls atomic.Int64
}

func (d *dying) take() error {
	if d.calls.Add(1) > 1 {
		return nil
	}
	if d.kill != nil {
		return d.kill()
	}
	return connect.NewError(connect.CodeUnavailable, errors.New("reach the leader: connection lost"))
}

func (d *dying) ApplyVIPs(context.Context, *weirv1.ApplyVIPsRequest) (*weirv1.ApplyVIPsResponse, error) {
	return &weirv1.ApplyVIPsResponse{}, d.take()
}

func (d *dying) DeleteVIP(context.Context, *weirv1.DeleteVIPRequest) (*weirv1.DeleteVIPResponse, error) {
	return &weirv1.DeleteVIPResponse{}, d.take()
}

// What was applied is there whether it was done once or twice; but who deletes must hear what came of it.
func TestLostCallsAreRepeatedThatMayBe(t *testing.T) {
	authority := newAuthority(t)
	for _, how := range []string{"the leader is lost", "the manager dies"} {
		for _, c := range []struct {
			name  string
			call  func(*Client) error
			again bool
		}{
			{"ApplyVIPs", func(c *Client) error {
				_, err := c.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{})
				return err
			}, true},
			{"DeleteVIP", func(c *Client) error {
				_, err := c.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "shop"})
				return err
			}, false},
		} {
			d := &dying{}
			one, kill := startTLS(t, authority, weirHandler(d))
			other, _ := startTLS(t, authority, weirHandler(d))
			if how == "the manager dies" {
				d.kill = kill
			}
			err := c.call(tlsClient(t, authority.Certificate, one, other))
			if again := err == nil && d.calls.Load() == 2; again != c.again {
				t.Errorf("%s: %s ended with %v after %d calls", how, c.name, err, d.calls.Load())
			}
		}
	}
}
