package rpc

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/trust"
)

// Membership is how a node becomes a member of the cluster and stays one.
type Membership struct {
	Managers  string // URLs, separated by commas
	Kind      trust.Kind
	Name      string
	DataDir   string // keeps the certificate
	TokenFile string // holds the join token; needed as long as there is no certificate
	CAHash    string // of the cluster's CA, "sha256:..."; with TokenFile
	Names     []string
	Addresses []netip.Addr // of a manager: what its certificate is good for, with Names
	Log       *slog.Logger

	current atomic.Pointer[trust.Credential]
}

// Credential is the newest one, nil before Obtain.
func (m *Membership) Credential() *trust.Credential { return m.current.Load() }

// Plain says whether the managers are called without TLS.
func (m *Membership) Plain() bool { return strings.HasPrefix(m.Managers, schemePlain+"://") }

// Client makes a client of the managers, after Obtain.
func (m *Membership) Client() (*Client, error) {
	access := Access{Managers: m.Managers, Memory: m.DataDir, Log: m.Log}
	if c := m.Credential(); c != nil {
		access.CA, access.Current = c.CA, m.Credential
	}
	return access.Client()
}

// Obtain loads the certificate from the data directory, or joins the cluster and keeps what it gets. It
// tries until a manager answers.
func (m *Membership) Obtain(ctx context.Context) error {
	if _, _, err := parseManagers(m.Managers); err != nil {
		return err
	}
	if m.Plain() {
		m.Log.Warn("no TLS towards the manager: use this on networks of your own only", "manager", m.Managers)
		return nil
	}
	c, err := trust.LoadCredential(m.DataDir)
	switch {
	case err == nil && !c.Identity.Is(m.Kind, m.Name):
		return fmt.Errorf("%s holds the certificate of %s, this is %s/%s: name another directory with --data-dir, or take the name back",
			trust.NodeFile(m.DataDir), c.Identity, m.Kind, m.Name)
	case err == nil && m.TokenFile != "" && m.CAHash != "" && m.CAHash != trust.Hash(c.CA):
		m.Log.Info("the cluster has another CA than the one of the certificate: joining it", "name", m.Name)
	case err == nil && time.Now().Before(c.Certificate.NotAfter):
		m.current.Store(c)
		return nil
	case err == nil && m.TokenFile == "":
		return fmt.Errorf("the certificate in %s expired at %s: join again with --token-file and --ca-hash",
			trust.NodeFile(m.DataDir), c.Certificate.NotAfter.UTC().Format(time.DateTime))
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	case m.TokenFile == "":
		return fmt.Errorf("there is no certificate in %s: join with --token-file and --ca-hash, as weir token create prints them",
			m.DataDir)
	}
	return m.join(ctx)
}

// join exchanges the token for a certificate.
func (m *Membership) join(ctx context.Context) error {
	text, err := os.ReadFile(m.TokenFile)
	if err != nil {
		return fmt.Errorf("read --token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if _, err := trust.ParseJoin(token); err != nil {
		return fmt.Errorf("read --token-file %s: %w", m.TokenFile, err)
	}
	key, err := trust.NewKey()
	if err != nil {
		return err
	}
	request, err := key.Request(m.Names, m.Addresses)
	if err != nil {
		return err
	}
	call := &weirv1.JoinRequest{Token: token, Role: string(m.Kind), Name: m.Name, Request: request}
	for told := ""; ; {
		response, ca, err := m.callJoin(ctx, call)
		if err == nil {
			return m.joined(key, response, ca)
		}
		if final := refusedForGood(err); final != nil {
			return fmt.Errorf("join the cluster: %w", final)
		}
		if err.Error() != told {
			told = err.Error()
			m.Log.Warn("can't join the cluster yet, trying on", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(backoffMost/2 + rand.N(backoffMost/2)):
		}
	}
}

// refusedForGood is the error that another attempt would not mend, as its reader should see it.
func refusedForGood(err error) error {
	var wrong *trust.WrongCAError
	var server *trust.ServerError
	var refused *Error
	switch {
	case errors.As(err, &wrong):
		return wrong
	case errors.As(err, &server):
		return server
	case errors.As(err, &refused) && refused.Code != connect.CodeUnavailable && refused.Code != connect.CodeDeadlineExceeded:
		return err
	}
	return nil
}

func (m *Membership) joined(key trust.Key, response *weirv1.JoinResponse, ca *x509.Certificate) error {
	certificate, err := x509.ParseCertificate(response.GetCertificate())
	if err != nil {
		return fmt.Errorf("join the cluster: read the certificate: %w", err)
	}
	c, err := key.Credential(certificate, ca)
	if err != nil {
		return fmt.Errorf("join the cluster: %w", err)
	}
	if err := c.Save(m.DataDir); err != nil {
		return fmt.Errorf("join the cluster: %w", err)
	}
	m.current.Store(c)
	m.Log.Info("joined the cluster", "name", m.Name, "role", m.Kind, "manager", m.Managers)
	return nil
}

// callJoin calls one of the managers, known by the hash of its CA, which it returns.
func (m *Membership) callJoin(ctx context.Context, call *weirv1.JoinRequest) (*weirv1.JoinResponse, *x509.Certificate, error) {
	addresses, _, err := parseManagers(m.Managers)
	if err != nil {
		return nil, nil, err
	}
	var ca atomic.Pointer[x509.Certificate] // several managers may be asked beside each other
	config, err := trust.PinnedTLS(m.CAHash, time.Now, ca.Store)
	if err != nil {
		return nil, nil, &Error{Code: connect.CodeInvalidArgument, Message: "read --ca-hash: " + err.Error(), cause: err}
	}
	d := &dialer{addresses: addresses}
	t := &http.Transport{DialTLSContext: d.dialTLS(config), Protocols: &http.Protocols{}}
	t.Protocols.SetHTTP2(true)
	defer t.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	client := weirv1connect.NewTrustServiceClient(&http.Client{Transport: t}, schemeTLS+"://"+addresses[0],
		connect.WithInterceptors(connect.UnaryInterceptorFunc(translateUnary)))
	response, err := client.Join(ctx, call)
	return response, ca.Load(), err
}

const (
	joinTimeout  = 15 * time.Second
	renewTimeout = 15 * time.Second
	// renewRetry is the longest pause between attempts to renew.
	renewRetry = time.Minute
)

// Keep renews the certificate well before its end, until ctx ends. It returns nil.
func (m *Membership) Keep(ctx context.Context, client *Client) error {
	if m.Plain() {
		<-ctx.Done()
		return nil
	}
	told := ""
	for {
		c := m.Credential()
		wait := time.Until(c.RenewAt())
		if wait <= 0 {
			err := m.renew(ctx, client)
			switch {
			case err == nil:
				told = ""
				m.Log.Info("renewed the certificate", "name", m.Name)
				continue
			case ctx.Err() != nil:
				return nil
			case err.Error() != told:
				told = err.Error()
				m.Log.Warn("can't renew the certificate, trying on", "err", err)
			}
			left := time.Until(c.Certificate.NotAfter)
			wait = max(backoffFirst, min(renewRetry, left/20))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

func (m *Membership) renew(ctx context.Context, client *Client) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	key, err := trust.NewKey()
	if err != nil {
		return err
	}
	request, err := key.Request(m.Names, m.Addresses)
	if err != nil {
		return err
	}
	response, err := client.RenewCertificate(ctx, &weirv1.RenewCertificateRequest{Request: request})
	if err != nil {
		return err
	}
	certificate, err := x509.ParseCertificate(response.GetCertificate())
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	c, err := key.Credential(certificate, m.Credential().CA)
	if err != nil {
		return err
	}
	if err := c.Save(m.DataDir); err != nil {
		return err
	}
	m.current.Store(c)
	return nil
}
