package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// Files of a credential, in the folder tls of a data directory.
const (
	folder   = "tls"
	nodeFile = "node.pem" // key, certificate and CA, so that they are replaced in one step
	caFile   = "ca.pem"
)

// NodeFile is where the data directory holds the node's key and certificate, as PEM.
func NodeFile(dataDir string) string { return filepath.Join(dataDir, folder, nodeFile) }

// CAFile is where the data directory holds the cluster's CA, as PEM.
func CAFile(dataDir string) string { return filepath.Join(dataDir, folder, caFile) }

// Credential is a certificate with its key, and the CA that signed it.
type Credential struct {
	Identity    Identity
	Certificate *x509.Certificate
	CA          *x509.Certificate
	key         crypto.Signer
}

// Key is a key without a certificate yet.
type Key struct{ signer *ecdsa.PrivateKey }

// NewKey makes a key.
func NewKey() (Key, error) {
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("make a key: %w", err)
	}
	return Key{signer}, nil
}

// Request asks for a certificate of the key, that is good for these names and addresses.
func (k Key) Request(names []string, addresses []netip.Addr) ([]byte, error) {
	template := &x509.CertificateRequest{DNSNames: names}
	for _, a := range addresses {
		template.IPAddresses = append(template.IPAddresses, a.Unmap().AsSlice())
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, k.signer)
	if err != nil {
		return nil, fmt.Errorf("request a certificate: %w", err)
	}
	return der, nil
}

// Credential puts the key and its certificate together.
func (k Key) Credential(certificate, ca *x509.Certificate) (*Credential, error) {
	if !k.signer.PublicKey.Equal(certificate.PublicKey) {
		return nil, errors.New("the certificate is of another key")
	}
	identity, err := identityOf(certificate)
	if err != nil {
		return nil, err
	}
	return &Credential{Identity: identity, Certificate: certificate, CA: ca, key: k.signer}, nil
}

// KeyPEM and CertificatePEM write the parts of a credential.
func (c *Credential) KeyPEM() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		return nil, fmt.Errorf("write the key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: der}), nil
}

// CertificatePEM writes the certificate.
func (c *Credential) CertificatePEM() []byte { return EncodeCertificate(c.Certificate) }

// ParseCredential reads a key, its certificate, and the CA, each as PEM.
func ParseCredential(key, certificate, ca []byte) (*Credential, error) {
	text := append(append(append([]byte(nil), key...), '\n'), certificate...)
	return parseCredential(append(append(text, '\n'), ca...))
}

func parseCredential(text []byte) (*Credential, error) {
	key, chain, err := parsePEM(text)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(*ecdsa.PrivateKey)
	if !ok || len(chain) != 2 {
		return nil, errors.New("must hold a key, its certificate, and the CA")
	}
	return Key{signer}.Credential(chain[0], chain[1])
}

// LoadCredential reads the credential of a data directory. Without one the error is os.ErrNotExist.
func LoadCredential(dataDir string) (*Credential, error) {
	path := NodeFile(dataDir)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	c, err := parseCredential(text)
	if err != nil {
		return nil, fmt.Errorf("read the certificate %s: %w", path, err)
	}
	return c, nil
}

// Save writes the credential into the data directory, in one step.
func (c *Credential) Save(dataDir string) error {
	if err := os.MkdirAll(filepath.Join(dataDir, folder), 0o700); err != nil {
		return fmt.Errorf("make the folder of the certificate: %w: name a data directory that may be written, with --data-dir", err)
	}
	key, err := c.KeyPEM()
	if err != nil {
		return err
	}
	ca := EncodeCertificate(c.CA)
	if err := WriteFile(CAFile(dataDir), ca); err != nil {
		return err
	}
	return WriteFile(NodeFile(dataDir), append(append(key, c.CertificatePEM()...), ca...))
}

// CanWriteFile says why WriteFile could not write a file as small as a credential, before there is one.
func CanWriteFile(path string) error {
	try, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	const most = 64 << 10
	_, err = try.Write(make([]byte, most))
	if info, reason := os.Stat(path); reason == nil && info.IsDir() {
		err = errors.Join(err, errors.New("it is a folder"))
	}
	if err = errors.Join(err, try.Sync(), try.Close(), os.Remove(try.Name())); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// WriteFile replaces a file that only its owner may read, in one step that a crash does not halve.
func WriteFile(path string, data []byte) error {
	next, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = next.Write(data)
	if err = errors.Join(err, next.Sync(), next.Close()); err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(next.Name()))
	}
	return nil
}

// RenewAt is when a new certificate is asked for: after two thirds of its life.
func (c *Credential) RenewAt() time.Time {
	from := c.Certificate.NotBefore.Add(backdate)
	return from.Add(c.Certificate.NotAfter.Sub(from) * 2 / 3)
}

// TLS is the credential for package tls, with the CA in its chain so that a node that joins finds it.
func (c *Credential) TLS() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{c.Certificate.Raw, c.CA.Raw}, PrivateKey: c.key, Leaf: c.Certificate}
}
