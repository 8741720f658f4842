package rpc

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"go.yaml.in/yaml/v4"

	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/trust"
)

// ConfigVariable names the environment variable that says where the user's configuration is.
const ConfigVariable = "WEIR_CONFIG"

// mostOfManagers bounds a message of what managers tell of themselves and of each other's nodes, in bytes.
const mostOfManagers = 16 << 20

// Access is how to reach managers, how to know them, and how to prove who one is.
type Access struct {
	Managers string                   // URLs, separated by commas
	CA       *x509.Certificate        // of the cluster; nil: only http:// is possible
	Current  func() *trust.Credential // the newest certificate; nil: there is none
	Token    string                   // bearer token of a user
	Memory   string                   // data directory that keeps what a node has seen; empty: nothing is kept
	Log      *slog.Logger             // with Memory

	Around connect.UnaryInterceptorFunc // of each call that is no stream; nil: nothing
}

// Client makes a client. One manager is used at a time; when it can't be reached, the next one is tried.
func (a Access) Client() (*Client, error) {
	base, t, err := a.transport()
	if err != nil {
		return nil, err
	}
	at, httpClient := base.String(), &http.Client{Transport: t}
	around := a.Around
	if around == nil {
		around = func(next connect.UnaryFunc) connect.UnaryFunc { return next }
	}
	translating := connect.WithInterceptors(
		around, connect.UnaryInterceptorFunc(translateUnary), connect.UnaryInterceptorFunc(retryUnary), connect.UnaryInterceptorFunc(cutting),
		fencing{fence: newFence(a.Memory, a.Log), leave: t.dialer.closeAll})
	return &Client{
		WeirServiceClient:    weirv1connect.NewWeirServiceClient(httpClient, at, translating),
		SyncServiceClient:    weirv1connect.NewSyncServiceClient(httpClient, at, translating),
		ClusterServiceClient: weirv1connect.NewClusterServiceClient(httpClient, at, translating, connect.WithReadMaxBytes(mostOfManagers)),
		TrustServiceClient:   weirv1connect.NewTrustServiceClient(httpClient, at, translating),
		transport:            t,
	}, nil
}

// Transport sends requests of HTTP to the managers, as a Client does, and shows them who the user is. base is the URL that
// requests are for, whichever manager answers.
func (a Access) Transport() (base *url.URL, by http.RoundTripper, err error) { return a.transport() }

func (a Access) transport() (base *url.URL, t *transport, err error) {
	addresses, scheme, err := parseManagers(a.Managers)
	if err != nil {
		return nil, nil, err
	}
	if scheme == schemeTLS && a.CA == nil {
		return nil, nil, fmt.Errorf("reach the manager at %s: the cluster's CA is not known: name a configuration with --config or the variable %s, "+
			"or write http:// for a manager that runs with --insecure", a.Managers, ConfigVariable)
	}
	t = &transport{access: a, dialer: &dialer{addresses: addresses}, secure: scheme == schemeTLS}
	return &url.URL{Scheme: scheme, Host: addresses[0]}, t, nil
}

// transport sends requests over connections that are opened with the newest certificate. Streams that
// are open go on over theirs.
type transport struct {
	access Access
	dialer *dialer
	secure bool

	mu         sync.Mutex
	credential *trust.Credential // of now
	now        *http.Transport
}

// RoundTrip sends one request.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.access.Token != "" && t.secure {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+t.access.Token)
	}
	response, err := t.current().RoundTrip(coalesceMessages(r))
	if err != nil && !t.secure {
		err = t.dialer.wantsTLS(r.Context(), err)
	}
	return response, err
}

func (t *transport) current() *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	var newest *trust.Credential
	if t.access.Current != nil {
		newest = t.access.Current()
	}
	if t.now != nil && newest == t.credential {
		return t.now
	}
	if t.now != nil {
		t.now.CloseIdleConnections()
	}
	t.credential, t.now = newest, &http.Transport{
		Protocols:       &http.Protocols{},
		HTTP2:           &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		IdleConnTimeout: idleTimeout,
	}
	if t.secure {
		t.now.Protocols.SetHTTP2(true)
		t.now.DialTLSContext = t.dialer.dialTLS(trust.ClientTLS(t.access.CA, func() *trust.Credential { return newest }, time.Now))
	} else {
		t.now.DialContext = t.dialer.dial
		t.now.Protocols.SetUnencryptedHTTP2(true)
	}
	return t.now
}

// CloseIdleConnections closes what no call uses.
func (t *transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil {
		t.now.CloseIdleConnections()
	}
}

// Config is a user's configuration file.
type Config struct {
	Managers    []string `yaml:"managers"`
	CA          string   `yaml:"ca"`                    // PEM
	Certificate string   `yaml:"certificate,omitempty"` // PEM
	Key         string   `yaml:"key,omitempty"`         // PEM
	Token       string   `yaml:"token,omitempty"`
}

// AddManagers adds managers, by the host:port of their API, and says whether it did not name all of them yet. Those
// that listen at all addresses tell none.
func (c *Config) AddManagers(managers ...string) (more bool) {
	named, _, _ := parseManagers(strings.Join(c.Managers, ",")) // what is not readable names none
	for _, m := range managers {
		at, err := netip.ParseAddrPort(m)
		if slices.Contains(named, m) || err == nil && at.Addr().IsUnspecified() {
			continue
		}
		c.Managers, named, more = append(c.Managers, schemeTLS+"://"+m), append(named, m), true
	}
	return more
}

// Encode writes the file.
func (c Config) Encode() ([]byte, error) {
	text, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return append([]byte("# How to reach a Weir cluster, and who you are to it: keep it to yourself.\n"), text...), nil
}

// Access is what the configuration says.
func (c Config) Access() (Access, error) {
	a := Access{Managers: strings.Join(c.Managers, ","), Token: c.Token}
	if c.CA == "" {
		return a, nil
	}
	ca, err := trust.ParseCertificate([]byte(c.CA))
	if err != nil {
		return a, fmt.Errorf("ca: %w", err)
	}
	a.CA = ca
	if c.Certificate == "" && c.Key == "" {
		return a, nil
	}
	credential, err := trust.ParseCredential([]byte(c.Key), []byte(c.Certificate), []byte(c.CA))
	if err != nil {
		return a, fmt.Errorf("certificate and key: %w", err)
	}
	a.Current = func() *trust.Credential { return credential }
	return a, nil
}

// ConfigPath is where the user's configuration is when no flag says otherwise.
func ConfigPath() string {
	if path := os.Getenv(ConfigVariable); path != "" {
		return path
	}
	folder, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(folder, "weir", "config.yaml")
}

// FounderFile is where the manager that founded a cluster has the first user's configuration, unless its --data-dir says
// otherwise. Only root and the manager can read it.
const FounderFile = "/var/lib/weir/admin.yaml"

// ReadConfig reads the user's configuration. path names the file; without one it may be missing, and who may read
// FounderFile is the first user.
func ReadConfig(path string) (Access, error) {
	named := path != "" || os.Getenv(ConfigVariable) != ""
	if path == "" {
		path = ConfigPath()
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) && !named {
		path = FounderFile
		if text, err = os.ReadFile(path); err != nil { // who may not read it is another user
			return Access{}, nil //nolint:nilerr // a configuration need not be there
		}
	}
	if err != nil {
		return Access{}, fmt.Errorf("read the configuration: %w", err)
	}
	var c Config
	if err := yaml.Load(text, &c, yaml.WithKnownFields()); err != nil {
		return Access{}, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	a, err := c.Access()
	if err != nil {
		return a, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	return a, nil
}

// The schemes of a manager's URL.
const (
	schemeTLS   = "https"
	schemePlain = "http"
)

// parseManagers returns the managers' addresses as host:port, and their scheme.
func parseManagers(managers string) (addresses []string, scheme string, err error) {
	for _, m := range strings.Split(managers, ",") {
		m = strings.TrimSpace(m)
		if !strings.Contains(m, "://") {
			m = schemeTLS + "://" + m
		}
		u, err := url.Parse(m)
		switch {
		case err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/") != "":
			return nil, "", fmt.Errorf("read the manager's address: must be https://host:port, is %q", m)
		case u.Scheme != schemeTLS && u.Scheme != schemePlain:
			return nil, "", fmt.Errorf("read the manager's address %q: %s is not supported, use https", m, u.Scheme)
		case scheme != "" && u.Scheme != scheme:
			return nil, "", fmt.Errorf("read the manager's address %q: all managers must have https, or all http", m)
		case u.Port() == "":
			u.Host = joinPort(u.Hostname())
		}
		scheme, addresses = u.Scheme, append(addresses, u.Host)
	}
	return addresses, scheme, nil
}
