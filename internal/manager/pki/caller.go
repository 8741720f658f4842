package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
)

// UnknownUserError is why somebody is refused who may be a user that this manager has not heard of yet.
type UnknownUserError struct{ Reason string }

func (e *UnknownUserError) Error() string { return e.Reason }

// ByCertificate is whom a client certificate is of, if it is in force.
func (i *Identity) ByCertificate(certificate *x509.Certificate, trusted *truststore.Trust, now time.Time) (trust.Identity, error) {
	caller, err := i.identified(certificate, trusted, now)
	if err != nil {
		return trust.Identity{}, err
	}
	return InForce(caller, trusted)
}

// identified is whom a certificate is of. Signatures are checked once.
func (i *Identity) identified(certificate *x509.Certificate, trusted *truststore.Trust, now time.Time) (trust.Identity, error) {
	key := sha256.Sum256(certificate.Raw)
	if known, ok := i.known.get(key); ok && now.Before(certificate.NotAfter) {
		return known, nil
	}
	if trusted.Authority == nil {
		return trust.Identity{}, errors.New("the cluster has no CA")
	}
	caller, err := trust.Identify(certificate, trusted.Authority.Certificate, now)
	if err == nil {
		i.known.put(key, caller)
	}
	return caller, err
}

// InForce holds that what the caller has shown, a certificate or a bearer token, was not revoked or replaced, and says
// what the caller may do. It is asked when a call begins, and of each open stream when Trust changes.
func InForce(caller trust.Identity, trusted *truststore.Trust) (trust.Identity, error) {
	principal := trusted.Principals.At(caller.String())
	account, known := trusted.Accounts.Get(caller.Name)
	certified := caller.Method == trust.ByCertificate
	switch {
	case caller.Kind != trust.User && caller.Issue >= principal.Issue:
		return caller, nil
	case caller.Kind != trust.User || caller.Issue < principal.Issue && certified:
		return trust.Identity{}, fmt.Errorf("the certificate of %s was revoked: join again with a new token, or ask an admin for other credentials", caller)
	case !known || caller.Method != account.Method():
		return trust.Identity{}, &UnknownUserError{fmt.Sprintf("there is no %s with a %s any more", caller, credential(caller.Method))}
	case principal.Revoked || caller.Issue < principal.Issue:
		return trust.Identity{}, fmt.Errorf("the %s of %s was revoked: ask an admin for another", credential(caller.Method), caller)
	case !certified && caller.Issue > principal.Issue:
		return trust.Identity{}, &UnknownUserError{fmt.Sprintf("this manager has not heard of the %s of %s", credential(caller.Method), caller)}
	}
	caller.Bindings = account.Bindings
	return caller, nil
}

// credential is what a user has shown.
func credential(m trust.Method) string {
	if m == trust.ByProvider {
		return "sign-in"
	}
	return string(m)
}

// ByToken is whose bearer token secret is, if it is in force.
func ByToken(secret trust.Secret, trusted *truststore.Trust) (trust.Identity, error) {
	account, known := trusted.Accounts.Get(secret.ID)
	// The same work for users that are not there, so that time does not tell which ones are.
	if matches := secret.Matches(account.Hash); !known || !matches {
		return trust.Identity{}, &UnknownUserError{Reason: "the bearer token is not valid: it was replaced or revoked, or its user deleted: ask an admin for another"}
	}
	caller := trust.Identity{Kind: trust.User, Name: account.Name, Method: trust.ByToken}
	// The token that matches is the newest. Each later revocation, rotation and deletion counts the issue up.
	caller.Issue = trusted.Principals.At(caller.String()).Issue
	return InForce(caller, trusted)
}

// maxKnown bounds the certificates that are remembered.
const maxKnown = 20000

// knownCertificates remembers whom certificates are of, by their hash.
type knownCertificates struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]trust.Identity
}

func (k *knownCertificates) get(key [sha256.Size]byte) (trust.Identity, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i, ok := k.all[key]
	return i, ok
}

func (k *knownCertificates) put(key [sha256.Size]byte, i trust.Identity) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil || len(k.all) >= maxKnown {
		k.all = map[[sha256.Size]byte]trust.Identity{}
	}
	k.all[key] = i
}
