package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/credentials"
)

// EtcdTLS are the files, as PEM, by which this manager and an external etcd know each other. They are read again for
// each connection: who replaces them need not restart the manager.
type TLS struct {
	CA          string // of etcd; empty: the machine's CAs
	Certificate string // of this manager, with Key; empty: etcd asks for none
	Key         string
}

// Flags adds the flags.
func (f *TLS) Flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.CA, "etcd-ca-file", "", "file with the CA of an external etcd, read again for each connection (default: the machine's CAs)")
	flags.StringVar(&f.Certificate, "etcd-cert-file", "", "file with this manager's certificate for an external etcd, read again for each connection")
	flags.StringVar(&f.Key, "etcd-key-file", "", "file with the key of --etcd-cert-file")
}

// check says what is wrong with the files for these endpoints.
func (f TLS) check(endpoints []string) error {
	secure := 0
	for _, e := range endpoints {
		if strings.HasPrefix(e, "https://") {
			secure++
		}
	}
	switch {
	case f != TLS{} && len(endpoints) == 0:
		return errors.New("--etcd-ca-file, --etcd-cert-file and --etcd-key-file are for an external etcd: name it with --etcd-endpoints")
	case secure != 0 && secure != len(endpoints):
		return fmt.Errorf("read --etcd-endpoints %s: must all be https:// or none", strings.Join(endpoints, ","))
	case f != TLS{} && secure == 0:
		return fmt.Errorf("read --etcd-endpoints %s: must be https:// with --etcd-ca-file, --etcd-cert-file and --etcd-key-file", strings.Join(endpoints, ","))
	case (f.Certificate == "") != (f.Key == ""):
		return errors.New("--etcd-cert-file and --etcd-key-file go together: name both")
	case secure == 0:
		return nil
	}
	_, err := f.read()
	return err
}

// read reads the files.
func (f TLS) read() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("read --etcd-ca-file: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read --etcd-ca-file: %s holds no certificate as PEM", f.CA)
		}
	}
	if f.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
		if err != nil {
			return nil, fmt.Errorf("read --etcd-cert-file %s and --etcd-key-file %s: %w", f.Certificate, f.Key, err)
		}
		// Also if it is of none of the CAs that etcd names: its refusal says more than that there was none.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return cfg, nil
}

// tlsCredentials begin each connection to an external etcd with what the files hold by then. Files that are being
// replaced may not fit each other for a moment: those from before serve on.
type tlsCredentials struct {
	files TLS
	log   *slog.Logger

	mu      sync.Mutex
	now     *tls.Config
	problem string // of the last connection; empty: it was made
}

func (c *tlsCredentials) config() (*tls.Config, error) {
	read, err := c.files.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.now = read
	case c.now == nil:
		return nil, err
	default:
		c.log.Warn("can't read the files for TLS with etcd, going on with what they held", "err", err)
	}
	return c.now, nil
}

// note keeps why etcd was not reached, and says it once.
func (c *tlsCredentials) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.problem
	if c.problem = ""; err != nil {
		c.problem = err.Error()
	}
	if c.problem != "" && c.problem != was {
		c.log.Warn("no TLS with etcd, trying on", "err", err)
	}
}

// last is why etcd was not reached; empty: it was.
func (c *tlsCredentials) last() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.problem
}

// ClientHandshake begins a connection to etcd.
func (c *tlsCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	cfg, err := c.config()
	if err != nil {
		c.note(err)
		return nil, nil, err
	}
	conn, info, err := credentials.NewTLS(cfg).ClientHandshake(ctx, authority, raw)
	if err != nil {
		c.note(err)
		return nil, nil, err
	}
	return &tlsConn{Conn: conn, credentials: c}, info, nil
}

// ServerHandshake is for servers.
func (*tlsCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a client's")
}

// Info says that this is TLS.
func (*tlsCredentials) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}).Info()
}

// Clone returns the same: there is nothing to change.
func (c *tlsCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName is not supported.
func (*tlsCredentials) OverrideServerName(string) error {
	return errors.New("etcd is known by the name in its endpoint")
}

// tlsConn notes what etcd says first: by TLS 1.3 it refuses a client's certificate only after the handshake.
type tlsConn struct {
	net.Conn

	credentials *tlsCredentials
	heard       bool // only by the goroutine that reads
}

func (c *tlsConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.heard && (n > 0 || !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed)) {
		c.heard = true
		c.credentials.note(err)
	}
	return n, err
}
