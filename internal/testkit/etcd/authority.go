package etcd

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Files are where one side of a connection to etcd has its certificate, its key, and the CA that it trusts.
type Files struct{ CA, Certificate, Key string }

// In are the files of a folder.
func In(folder string) Files {
	return Files{
		CA: filepath.Join(folder, "ca.pem"), Certificate: filepath.Join(folder, "certificate.pem"), Key: filepath.Join(folder, "key.pem"),
	}
}

// Authority is a CA of an operator's own, as etcd's have.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes a CA.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	key := newKey(t)
	certificate := sign(t, template, template, key, key)
	return &Authority{certificate: certificate, key: key}
}

// Write writes a certificate for 127.0.0.1, which serves either side, its key, and the CA.
func (a *Authority) Write(t testing.TB, files Files) {
	t.Helper()
	key := newKey(t)
	certificate := sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "127.0.0.1"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.certificate, key, a.key)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	write(t, files.CA, "CERTIFICATE", a.certificate.Raw)
	write(t, files.Certificate, "CERTIFICATE", certificate.Raw)
	write(t, files.Key, "PRIVATE KEY", secret)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func sign(t testing.TB, template, by *x509.Certificate, key, with *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must(t, err)
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	raw, err := x509.CreateCertificate(rand.Reader, template, by, &key.PublicKey, with)
	must(t, err)
	certificate, err := x509.ParseCertificate(raw)
	must(t, err)
	return certificate
}

func write(t testing.TB, path, kind string, raw []byte) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
