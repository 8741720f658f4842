package manager

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/trust"
)

// HTTP/2 takes no more requests of a connection at once than the manager says; by its certificate it says how many.
func TestStreamsOfAConnection(t *testing.T) {
	m, _, _ := secure(t, Config{})
	credential := func(authority *trust.Authority) []tls.Certificate {
		issued, err := pki.Issue(authority, trust.Identity{Kind: trust.User, Name: "admin"}, nil, nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{*issued.TLS()}
	}
	forger, err := trust.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		certificates []tls.Certificate
		streams      uint32
	}{
		"without a certificate": {nil, limits.StreamsOthers},
		"of another authority":  {credential(forger), limits.StreamsOthers},
		"certified":             {credential(m.identity.Authority()), limits.StreamsCertified},
	} {
		t.Run(name, func(t *testing.T) {
			config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: c.certificates} //nolint:gosec // the test asks who is let in
			conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", m.Address().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(20 * time.Second)) // the read tells
			if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
				t.Fatal(err)
			}
			framer := http2.NewFramer(conn, conn)
			if err := framer.WriteSettings(); err != nil {
				t.Fatal(err)
			}
			frame, err := framer.ReadFrame() // a server's first is of its settings
			if err != nil {
				t.Fatal(err)
			}
			if n, _ := frame.(*http2.SettingsFrame).Value(http2.SettingMaxConcurrentStreams); n != c.streams {
				t.Errorf("the manager takes %d, want %d", n, c.streams)
			}
		})
	}
}

// What would cost a manager more than the signature of a key of ours ends the handshake.
func TestCostlyCertificatesEndTheHandshake(t *testing.T) {
	m, _, _ := secure(t, Config{})
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key    *ecdsa.PrivateKey
		size   int // of the chain, in bytes
		answer bool
	}{"of ours": {p256, 0, true}, "a chain": {p256, 8 << 10, true}, "another kind of key": {p521, 0, false}, "a long chain": {p256, 32 << 10, false}} {
		t.Run(name, func(t *testing.T) {
			template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
			der, err := x509.CreateCertificate(rand.Reader, template, template, c.key.Public(), c.key)
			if err != nil {
				t.Fatal(err)
			}
			shown := tls.Certificate{PrivateKey: c.key, Certificate: [][]byte{der}}
			for size := len(der); size < c.size; size += len(der) {
				shown.Certificate = append(shown.Certificate, der)
			}
			config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}, Certificates: []tls.Certificate{shown}} //nolint:gosec // the test asks who is let in
			conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", m.Address().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(20 * time.Second)) // the read tells
			conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n"))
			text, err := io.ReadAll(conn)
			if answered := err == nil && strings.HasPrefix(string(text), "HTTP/1.1 200"); answered != c.answer {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}
