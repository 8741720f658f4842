package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// ServerTLS is how a manager serves. Clients may show any certificate: who they are is judged call by
// call, so that a refusal has a reason and is audited.
func ServerTLS(current func() *Credential) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		ClientAuth: tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return current().TLS(), nil
		},
		VerifyPeerCertificate: func(chain [][]byte, _ [][]*x509.Certificate) error { return checkKey(chain) },
	}
}

// checkKey refuses a client's certificate whose key no authority of ours signs, before the client's signature is verified: that
// takes up to ten times as long with another kind of key.
func checkKey(chain [][]byte) error {
	if len(chain) == 0 {
		return nil
	}
	leaf, err := x509.ParseCertificate(chain[0])
	if err != nil {
		return err
	}
	if key, ok := leaf.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return errors.New("the key of a client certificate must be of ECDSA with the curve P-256")
	}
	return nil
}

// ClientTLS is how a client talks to a manager of the cluster of ca: the manager is known by its
// certificate, whatever address it was reached at. current is nil, or returns nil, for a client without
// a certificate.
func ClientTLS(ca *x509.Certificate, current func() *Credential, now func() time.Time) *tls.Config {
	cfg := clientTLS(func(chain []*x509.Certificate) error { return checkManager(chain[0], ca, now()) })
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if current != nil {
			if c := current(); c != nil {
				return c.TLS(), nil
			}
		}
		return &tls.Certificate{}, nil
	}
	return cfg
}

// PinnedTLS is how a node without a certificate talks to a manager: it finds the CA of that hash in
// the manager's chain, and calls found with it.
func PinnedTLS(hash string, now func() time.Time, found func(ca *x509.Certificate)) (*tls.Config, error) {
	if !hashForm.MatchString(hash) {
		return nil, fmt.Errorf("must be sha256: and 64 hexadecimal digits, as weir token create prints it, is %.80q", hash)
	}
	return clientTLS(func(chain []*x509.Certificate) error {
		for _, ca := range chain[1:] {
			if Hash(ca) == hash {
				if err := checkManager(chain[0], ca, now()); err != nil {
					return err
				}
				found(ca)
				return nil
			}
		}
		return &WrongCAError{}
	}), nil
}

var hashForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// WrongCAError says that the manager is of another cluster than the one that was pinned.
type WrongCAError struct{}

func (*WrongCAError) Error() string {
	return "the manager's CA has another hash than the one given: is it another cluster's manager, or somebody in between?"
}

// clientTLS leaves the check of the server to check: managers are known by what they are, not by
// where they are.
func clientTLS(check func(chain []*x509.Certificate) error) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection does it, for the cluster's CA and managers only
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("the manager shows no certificate")
			}
			return check(s.PeerCertificates)
		},
	}
}

// ServerError says why a manager's certificate was refused.
type ServerError struct{ err error }

func (e *ServerError) Error() string { return "the manager's certificate is refused: " + e.err.Error() }
func (e *ServerError) Unwrap() error { return e.err }

func checkManager(certificate, ca *x509.Certificate, now time.Time) error {
	if err := verify(certificate, ca, now, x509.ExtKeyUsageServerAuth); err != nil {
		return &ServerError{err}
	}
	identity, err := identityOf(certificate)
	if err != nil {
		return &ServerError{err}
	}
	if identity.Kind != Manager {
		return &ServerError{fmt.Errorf("it is of %s", identity)}
	}
	return nil
}
