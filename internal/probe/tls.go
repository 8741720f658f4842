package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"strings"

	"github.com/weirlb/weir/internal/model"
)

// startTLS makes a connection one of TLS that speaks the protocol. Sessions are not resumed: that the server still has its
// key is a part of what is asked. crypto/tls bounds messages of handshakes, records that say nothing, and keys.
func startTLS(ctx context.Context, conn net.Conn, backend model.HostBackend, protocol string) (net.Conn, error) {
	check := backend.HealthCheck
	roots, err := authorities(check.TLS.CA)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, &tls.Config{
		ServerName: serverName(backend), RootCAs: roots, NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: check.TLS.CA == "", // as its owner wrote: the check asks whether the server answers
	})
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, certificateReason(err, serverName(backend))
	}
	return secure, nil
}

// authorities are those whose certificates are taken; nil: those of this machine.
func authorities(pem string) (*x509.CertPool, error) {
	if pem == "" || pem == model.SystemCA {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(pem)) {
		return nil, errors.New("the check's ca has no certificate")
	}
	return pool, nil
}

// serverName is the check's own, or its host without the port.
func serverName(backend model.HostBackend) string {
	if name := backend.HealthCheck.TLS.ServerName; name != "" {
		return name
	}
	host := hostHeader(backend)
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.Trim(host, "[]")
}

// certificateReason says in a few words why a certificate was not taken.
func certificateReason(err error, name string) error {
	var unknown x509.UnknownAuthorityError
	var other x509.HostnameError
	var invalid x509.CertificateInvalidError
	var plain tls.RecordHeaderError
	switch {
	case errors.As(err, &plain):
		return errors.New("the server speaks no TLS")
	case errors.As(err, &unknown):
		return errors.New("the certificate is of an unknown authority")
	case errors.As(err, &other):
		what := "the name "
		if _, err := netip.ParseAddr(name); err == nil {
			what = "the address "
		}
		return errors.New("the certificate is not for " + what + name)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return errors.New("the certificate has expired, or is not valid yet")
	}
	return err
}
