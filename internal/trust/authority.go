package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"time"
)

const (
	// authorityLife is how long a CA lives: it is replaced, with all that it signed, and not renewed.
	authorityLife = 30 * 365 * 24 * time.Hour
	// backdate is how far a principal's clock may be behind that of the manager that signs.
	backdate = 2 * time.Hour

	// NodeLife is how long a certificate of a node lives: it is renewed after two thirds of it.
	NodeLife = 30 * 24 * time.Hour
	// ManagerLife is how long one of a manager lives: it is renewed as early as those of nodes, so that all
	// managers may be away for years and still know each other.
	ManagerLife = 10 * 365 * 24 * time.Hour
	// UserLife is how long one of a user lives.
	UserLife = 365 * 24 * time.Hour
)

// Authority is the cluster's CA with its key.
type Authority struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes a CA.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the CA's key: %w", err)
	}
	serial, err := newSerial(0)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Weir CA " + hex.EncodeToString(serial.Bytes()[5:9])},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the CA's certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read the CA's certificate: %w", err)
	}
	return &Authority{Certificate: certificate, key: key}, nil
}

// PEM writes the certificate and the key. It is for the store only.
func (a *Authority) PEM() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("write the CA's key: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: key})
	return append(text, EncodeCertificate(a.Certificate)...), nil
}

// ParseAuthority reads what PEM wrote.
func ParseAuthority(text []byte) (*Authority, error) {
	key, chain, err := parsePEM(text)
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w", err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || len(chain) != 1 || !private.PublicKey.Equal(chain[0].PublicKey) {
		return nil, errors.New("read the CA: its key and its certificate do not belong together")
	}
	return &Authority{Certificate: chain[0], key: private}, nil
}

// Hash pins a CA: "sha256:" and the hash of its public key.
func Hash(ca *x509.Certificate) string {
	sum := sha256.Sum256(ca.RawSubjectPublicKeyInfo)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Sign gives i a certificate for the key of the request. Of a manager's request the addresses and DNS
// names are taken over too.
func (a *Authority) Sign(i Identity, request []byte, now time.Time, life time.Duration) (*x509.Certificate, error) {
	csr, err := ParseRequest(request)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial(i.Issue)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{Organization: []string{string(i.Kind)}, CommonName: i.Name},
		URIs: []*url.URL{i.uri()}, NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if i.Kind == Manager {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		template.DNSNames, template.IPAddresses = csr.DNSNames, csr.IPAddresses
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Certificate, csr.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", i, err)
	}
	return x509.ParseCertificate(der)
}

// maxRequest bounds a request, in bytes.
const maxRequest = 16 << 10

// ParseRequest reads a PKCS #10 request, and holds that its sender has the key.
func ParseRequest(der []byte) (*x509.CertificateRequest, error) {
	if len(der) > maxRequest {
		return nil, fmt.Errorf("read the request: has more than %d bytes", maxRequest)
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	// First: the signature of another kind of key takes far longer.
	if key, ok := csr.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("read the request: its key must be ECDSA P-256")
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	return csr, nil
}

// KeyHash names the public key of a request.
func KeyHash(csr *x509.CertificateRequest) string {
	sum := sha256.Sum256(csr.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// A serial number is 1, the issue in four bytes, and twelve random bytes.
const serialSize = 17

func newSerial(issue uint32) (*big.Int, error) {
	serial := make([]byte, serialSize)
	if _, err := rand.Read(serial); err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	serial[0] = 1
	binary.BigEndian.PutUint32(serial[1:], issue)
	return new(big.Int).SetBytes(serial), nil
}

func issueOf(serial *big.Int) (uint32, bool) {
	b := serial.Bytes()
	if len(b) != serialSize || b[0] != 1 {
		return 0, false
	}
	return binary.BigEndian.Uint32(b[1:]), true
}

// Identify says whom certificate is of, after holding that ca signed it for a client and that it is in
// force. Whether it was revoked is another question.
func Identify(certificate, ca *x509.Certificate, now time.Time) (Identity, error) {
	if err := verify(certificate, ca, now, x509.ExtKeyUsageClientAuth); err != nil {
		return Identity{}, err
	}
	return identityOf(certificate)
}

func identityOf(certificate *x509.Certificate) (Identity, error) {
	if len(certificate.URIs) != 1 {
		return Identity{}, errors.New("the certificate names nobody")
	}
	i, err := ParseURI(certificate.URIs[0])
	if err != nil {
		return Identity{}, err
	}
	issue, ok := issueOf(certificate.SerialNumber)
	if !ok {
		return Identity{}, errors.New("the certificate's serial number holds no issue")
	}
	i.Issue, i.Method = issue, ByCertificate
	return i, nil
}

func verify(certificate, ca *x509.Certificate, now time.Time, usage x509.ExtKeyUsage) error {
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	_, err := certificate.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.After(certificate.NotAfter):
		return fmt.Errorf("the certificate expired at %s: join again with a new token, or ask an admin for another", certificate.NotAfter.UTC().Format(time.DateTime))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the certificate is not valid before %s: is a clock wrong?", certificate.NotBefore.UTC().Format(time.DateTime))
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return errors.New("the certificate is not for this use")
	}
	return errors.New("the certificate is of another CA: it was made for another cluster; join this one with a token of its own")
}

// The types of PEM blocks.
const (
	blockKey         = "PRIVATE KEY"
	blockCertificate = "CERTIFICATE"
)

// EncodeCertificate writes a certificate as PEM.
func EncodeCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: c.Raw})
}

// ParseCertificate reads one certificate as PEM.
func ParseCertificate(text []byte) (*x509.Certificate, error) {
	_, chain, err := parsePEM(text)
	if err != nil {
		return nil, err
	}
	return chain[0], nil
}

// parsePEM reads a key, which may be missing, and certificates.
func parsePEM(text []byte) (key crypto.PrivateKey, chain []*x509.Certificate, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case blockKey:
			if key, err = x509.ParsePKCS8PrivateKey(block.Bytes); err != nil {
				return nil, nil, err
			}
		case blockCertificate:
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, nil, err
			}
			chain = append(chain, certificate)
		}
	}
	if len(chain) == 0 {
		return nil, nil, errors.New("there is no certificate in it")
	}
	return key, chain, nil
}
